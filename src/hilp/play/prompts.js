// A policy of the page and its prompts, as hilp.prompts has them: a goal, a reward, a skill, a path, preferences, each
// a function from states to skills. What the policy computes is in its programs; nothing here knows a method by name.
"use strict";
window.hilpPolicy = (() => {
  const { decode, program } = window.hilpPrograms;
  const { BEST, GUESS, Midpoints, Graph, fresh, apart, undiscounted, trustRadius, rowOf, variance, plan, rewardSubgoal, AS_GOOD, POOR_FIT } = window.hilpPlanning;
  const AT_GOAL = 1e-3, RIDGE = 1e-6, OTHER_WAY = 0.5, EXACT = 0.9999, REWARD_DISCOUNT = 0.99, WINDOW = 10, LOOKED = 3, MOST = 12, BLOCK = 256;
  const gathered = (table, wide, rows) => { const out = new table.constructor(rows.length * wide); rows.forEach((row, n) => out.set(rowOf(table, wide, row), n * wide)); return out; };
  const lazily = (owner, name, make) => { const value = make(); Object.defineProperty(owner, name, { value }); return value; };
  const rounded = (value, digits = 2) => value.toFixed(digits);

  class Policy {
    constructor(note) {
      this.note = note;
      this.arrays = Object.fromEntries(Object.entries(note.arrays).map(([name, array]) => [name, decode(array)]));
      this.rules = Object.fromEntries(Object.entries(note.programs).map(([name, described]) => [name, program(described, this.arrays)]));
      this.wide = note.observation_dim;
      this.observations = this.arrays["bank.observations"].data;
      this.following = this.arrays["bank.next_observations"].data;
      this.actions = this.arrays["bank.actions"].data;
      this.count = this.observations.length / this.wide;
      this.tables = {};
      this.filling = this.#fill();
    }

    has(rule) { return rule === "discount" ? this.note.discount !== null : rule in this.rules; }
    get discount() { return this.note.discount; }

    // inputs: numbers row after row, each with its width.
    rule(name, ...inputs) {
      if (!this.rules[name]) throw new Error(`${this.note.method} has no rule '${name}'`);
      return this.rules[name](...inputs.map(([data, wide]) => ({ shape: [data.length / wide, wide], data }))).data;
    }

    encode(states) { return this.rule("encode", [states, this.wide]); }
    act(states, skills) { return this.rule("act", [states, this.wide], [skills, this.note.skill_dim]); }

    // The skills from latents to latents; 0 where they are the same to within rounding errors.
    direction(here, there) {
      const dim = this.dim, found = this.rule("goal_direction", [here, dim], [there, dim]), wide = this.note.skill_dim;
      for (let n = 0; n < here.length / dim; n++) if (!(apart(rowOf(there, dim, n), rowOf(here, dim, n)) > AT_GOAL)) found.fill(0, n * wide, (n + 1) * wide);
      return found;
    }

    distance(here, there) {
      if (this.has("distance")) return this.rule("distance", [here, this.dim], [there, this.dim]);
      return Float64Array.from({ length: here.length / this.dim }, (_, n) => Math.hypot(...rowOf(there, this.dim, n).map((value, d) => value - here[n * this.dim + d])));
    }

    project(z) {
      const length = Math.hypot(...z);
      return this.rule("project", [Float32Array.from(z, (value) => value / length), this.note.skill_dim]);
    }

    get dim() { return lazily(this, "dim", () => this.encode(this.observations.subarray(0, this.wide)).length); }
    // Tables over the bank, made a block at a time: by `warm` while a page has nothing else to do, or when asked for.
    * #fill() {
      const { wide } = this, cut = (table, first) => [table.subarray(first * wide, Math.min(this.count, first + BLOCK) * wide), wide];
      const makers = {};
      if (this.has("encode")) makers.nextLatents = (first) => this.rule("encode", cut(this.following, first));
      if (this.has("cumulant")) makers.features = (first) => this.rule("cumulant", cut(this.observations, first), cut(this.following, first));
      else if (this.has("backward")) makers.features = (first) => this.rule("backward", cut(this.following, first));
      for (const [name, make] of Object.entries(makers)) {
        const parts = [];
        for (let first = 0; first < this.count; first += BLOCK) { parts.push(make(first)); yield; }
        this.tables[name] = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
        parts.reduce((at, part) => { this.tables[name].set(part, at); return at + part.length; }, 0);
      }
      if (!this.hasGraph) return;
      yield this.graph.placed;
      yield this.ends;
    }
    warm() { return !this.filling.next().done; }
    #table(name) { while (!(name in this.tables) && this.warm()); return this.tables[name]; }
    get nextLatents() { return this.#table("nextLatents"); }
    get features() { return this.#table("features"); } // what rewards are expressed in, [n, skill_dim]
    get midpoints() {
      return lazily(this, "midpoints", () => new Midpoints(this.arrays["bank.latents"].data, this.dim, this.has("distance") ? (a, b) => this.distance(a, b) : null));
    }
    get graph() {
      return lazily(this, "graph", () => {
        const of = (name) => this.arrays[`graph.${name}`].data, first = [0];
        of("edges").forEach((count) => first.push(first[first.length - 1] + count));
        return new Graph({ landmarks: of("landmarks"), radius: of("radius")[0], first, target: of("target"), steps: of("steps"), counts: of("counts") }, this.midpoints, this.discount);
      });
    }
    get hasGraph() { return "graph.landmarks" in this.arrays; }

    // Where the transitions that rewards are planned on begin and end on the graph.
    get ends() {
      return lazily(this, "ends", () => {
        const rows = this.rowsOf("graph_rows"), of = (table) => this.graph.sharesOf(gathered(table, this.dim, rows));
        return { at: of(this.midpoints.latents), to: of(this.nextLatents) };
      });
    }
    // Rows of the bank that rewards are looked at in: all, unless the page says which.
    rowsOf(name) { return name in this.arrays ? Array.from(this.arrays[name].data) : [...Array(this.count).keys()]; }

    // A function of transitions over rows of the bank.
    overBank(apply, rows) {
      const cut = (table, row, wide) => table.subarray(row * wide, (row + 1) * wide), { wide } = this, acts = this.note.action_dim;
      return Float64Array.from(rows, (row) => apply({ s: cut(this.observations, row, wide), a: cut(this.actions, row, acts), s2: cut(this.following, row, wide) }));
    }

    // The prompt of a spec. reward: what a text names or is the formula of, as a function of transitions.
    prompt(spec, reward) {
      const makers = { goal: goalPrompt, reward: rewardPrompt, skill: skillPrompt, follow: followPrompt, prefer: preferPrompt };
      if (!makers[spec.kind]) throw new Error(`this page has no ${spec.kind} prompts: open the policy with hilp play`);
      const own = { warnings: [] };
      return Object.assign(own, makers[spec.kind](this, spec, reward, own.warnings));
    }
  }

  function options(spec, known) {
    for (const name of Object.keys(spec)) if (name !== "kind" && !known.includes(name)) throw new Error(`this page takes no '${name}' of a ${spec.kind}: open the policy with hilp play`);
  }

  // ---- goals --------------------------------------------------------------------------------------------------------

  function goalPrompt(policy, spec) {
    options(spec, ["goal", "plan", "best", "radius"]);
    const { plan = "auto", best = BEST, radius = null } = spec, how = plan === "auto" && !policy.has("goal_direction") ? 0 : plan, goal = Float32Array.from(spec.goal), named = typeof how === "string";
    if (!(named ? ["auto", "graph", "midpoints"].includes(how) : Number.isInteger(how) && how >= 0 && how <= MOST)) throw new Error(`plan is a number of recursions from 0 to ${MOST} or one of auto, graph, midpoints, not ${how}`);
    if (!policy.has("goal_direction")) {
      if (!policy.has("goal_skill")) throw new Error(`${policy.note.method} has no goal rule: prompt it with a reward`);
      if (how !== 0) throw new Error(`${policy.note.method} has no latent distances to plan with: use plan 0`);
      const z = policy.rule("goal_skill", [goal, policy.wide]);
      return { kind: "goal", goal, latent: z, reset() {}, skills: (states) => repeated(z, states.length / policy.wide) };
    }
    if (how === "graph" && !policy.hasGraph) throw new Error(`${policy.note.method} has no graph of its data: use plan 0`);
    const latent = policy.encode(goal), dim = policy.dim, tried = new Map();
    const onGraph = how === "graph" || (how === "auto" && radius === null && policy.note.trained_graph && policy.graph.isFineEnough);
    const toGoal = onGraph ? policy.graph.toGoal(latent) : null;
    const within = named ? (radius === null ? trustRadius(policy.discount) : radius) : 0;
    function target(here, agent, random) {
      if (onGraph && (how === "graph" || policy.graph.stepsLeft(here, latent, toGoal) < GUESS)) {
        if (!tried.has(agent)) tried.set(agent, fresh());
        return policy.graph.subgoal(here, latent, toGoal, best, tried.get(agent), random);
      }
      return how === 0 ? latent : policy.midpoints.subgoal(here, latent, named ? "auto" : how, best, within);
    }
    return {
      kind: "goal", goal, latent, toGoal, reset: (agent) => (agent === undefined ? tried.clear() : tried.delete(agent)),
      skills(states, agents = null, random = Math.random) {
        const here = policy.encode(states), there = new Float32Array(here.length);
        for (let n = 0; n < here.length / dim; n++) there.set(target(rowOf(here, dim, n), agents ? agents[n] : n, random), n * dim);
        return policy.direction(here, there);
      },
    };
  }

  const repeated = (z, rows) => { const out = new Float32Array(rows * z.length); for (let n = 0; n < rows; n++) out.set(z, n * z.length); return out; };
  const fixed = (policy, z, more = {}) => ({ kind: "skill", z, ...more, reset() {}, skills: (states) => repeated(z, states.length / policy.wide) });

  function skillPrompt(policy, spec) {
    options(spec, ["z"]);
    if (!policy.has("project")) throw new Error(`${policy.note.method} has no skill rule: prompt it with a goal`);
    const z = spec.z || [];
    if (z.length !== policy.note.skill_dim || !z.every(Number.isFinite) || !z.some((value) => value !== 0)) throw new Error(`a skill of this policy is a direction of ${policy.note.skill_dim} numbers`);
    return fixed(policy, policy.project(z));
  }

  // A path: the agent heads for the farthest row ahead that is within a trusted distance.
  function followPrompt(policy, spec) {
    options(spec, ["trajectory", "window"]);
    const rows = Float32Array.from((spec.trajectory || []).flat()), last = rows.length / policy.wide - 1, { window: ahead = null } = spec;
    if (last < 1 || !rows.every(Number.isFinite)) throw new Error("a demonstration has at least two observations, one a row");
    if (!policy.has("goal_direction")) throw new Error(`${policy.note.method} follows no paths here: open the policy with hilp play`);
    const latents = policy.encode(rows), dim = policy.dim, places = new Map();
    function target(here, agent) {
      const first = places.has(agent) ? places.get(agent) : 0;
      const end = places.has(agent) ? Math.min(last, first + LOOKED * (ahead || WINDOW)) : last, window = latents.subarray(first * dim, (end + 1) * dim);
      const far = policy.distance(repeated(here, end + 1 - first), window);
      let at = 0;
      far.forEach((value, n) => { if (value < far[at]) at = n; });
      places.set(agent, first + at);
      if (ahead !== null) return Math.min(last, first + at + ahead);
      const beyond = far.findIndex((value, n) => n >= at && value > trustRadius(policy.discount));
      return Math.min(last, first + Math.max(beyond < 0 ? far.length - 1 : beyond - 1, at + 1));
    }
    return {
      kind: "follow", reset: (agent) => (agent === undefined ? places.clear() : places.delete(agent)),
      skills(states, agents = null) {
        const here = policy.encode(states), there = new Float32Array(here.length);
        for (let n = 0; n < here.length / dim; n++) there.set(rowOf(latents, dim, target(rowOf(here, dim, n), agents ? agents[n] : n)), n * dim);
        return policy.direction(here, there);
      },
    };
  }

  // ---- rewards ------------------------------------------------------------------------------------------------------

  // The solution of a small system with a symmetric positive matrix, by Gauss.
  function solve(matrix, right) {
    const a = matrix.map((row, n) => [...row, right[n]]), count = a.length;
    for (let k = 0; k < count; k++) {
      let best = k;
      for (let n = k + 1; n < count; n++) if (Math.abs(a[n][k]) > Math.abs(a[best][k])) best = n;
      [a[k], a[best]] = [a[best], a[k]];
      for (let n = k + 1; n < count; n++) { const by = a[n][k] / a[k][k]; for (let j = k; j <= count; j++) a[n][j] -= by * a[k][j]; }
    }
    const x = new Array(count).fill(0);
    for (let k = count - 1; k >= 0; k--) { let sum = a[k][count]; for (let j = k + 1; j < count; j++) sum -= a[k][j] * x[j]; x[k] = sum / a[k][k]; }
    return x;
  }

  // z = (E[x x'] + ridge I)^-1 E[r x], and the share of the reward's variance that it explains.
  function leastSquares(x, wide, r) {
    const count = r.length, moment = Array.from({ length: wide }, () => new Array(wide).fill(0)), right = new Array(wide).fill(0);
    for (let n = 0; n < count; n++) for (let i = 0; i < wide; i++) {
      const value = x[n * wide + i] / count;
      right[i] += value * r[n];
      for (let j = 0; j < wide; j++) moment[i][j] += value * x[n * wide + j];
    }
    const ridge = (RIDGE * moment.reduce((sum, row, i) => sum + row[i], 0)) / wide;
    if (ridge === 0) return [new Array(wide).fill(0), 0];
    moment.forEach((row, i) => { row[i] += ridge; });
    const z = solve(moment, right), varies = variance(r);
    const left = r.map((value, n) => { for (let i = 0; i < wide; i++) value -= x[n * wide + i] * z[i]; return value; });
    return [z, varies > 0 ? 1 - variance(left) / varies : 0];
  }

  const cosine = (a, b) => { const lengths = Math.hypot(...a) * Math.hypot(...b); return lengths > 0 ? a.reduce((sum, value, n) => sum + value * b[n], 0) / lengths : 1; };

  function centred(x, wide) {
    const mean = new Float64Array(wide), count = x.length / wide;
    x.forEach((value, n) => { mean[n % wide] += value / count; });
    return Float64Array.from(x, (value, n) => value - mean[n % wide]);
  }

  function labelled(policy, reward, rows) {
    const rewards = policy.overBank(reward, rows), bad = rewards.findIndex((value) => !Number.isFinite(value));
    if (bad >= 0) throw new Error(`the reward is NaN or infinite for ${rewards.filter((value) => !Number.isFinite(value)).length} of ${rewards.length} transitions, first at ${bad}`);
    if (rewards.every((value) => value === rewards[0])) throw new Error("the reward is the same everywhere in the sampled data, so it asks for nothing");
    return rewards;
  }

  const featuresOf = (policy, rows) => (rows.length === policy.count ? policy.features : gathered(policy.features, policy.note.skill_dim, rows));
  const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  function centredFit(policy, rewards, rows) {
    const wide = policy.note.skill_dim, mean = meanOf(rewards);
    return leastSquares(centred(featuresOf(policy, rows), wide), wide, rewards.map((value) => value - mean));
  }

  function direction(policy, rewards, rows, intercept) {
    const wide = policy.note.skill_dim, features = featuresOf(policy, rows), mean = meanOf(rewards);
    let [z, r2] = intercept ? centredFit(policy, rewards, rows) : leastSquares(features, wide, rewards);
    if (!policy.has("cumulant")) {
      const r = intercept ? rewards.map((value) => value - mean) : rewards;
      z = z.map((_, i) => r.reduce((sum, value, n) => sum + value * features[n * wide + i], 0) / r.length);
    }
    if (!z.some((value) => value !== 0)) throw new Error("phi does not change on the sampled data, so no skill can follow a reward");
    return [z, r2];
  }

  function warnOfMean(policy, z, rewards, rows, warnings) {
    if (cosine(z, centredFit(policy, rewards, rows)[0]) < OTHER_WAY) warnings.push(`the mean of this reward (${meanOf(rewards).toPrecision(3)}), not its differences, decides this prompt: subtract it`);
  }

  // c s' of the change c (s' - s) that explains a reward best, up to a constant, and its R^2 on held-out samples.
  function change(before, after, wide, rewards, train) {
    const mean = meanOf(rewards), steps = centred(after.map((value, n) => value - before[n]), wide);
    const own = [...rewards.keys()].filter((n) => train[n]), held = [...rewards.keys()].filter((n) => !train[n]);
    const [c] = leastSquares(gathered(steps, wide, own), wide, own.map((n) => rewards[n] - mean)), by = (table, n) => c.reduce((sum, value, i) => sum + value * table[n * wide + i], 0);
    const left = variance(held.map((n) => rewards[n] - mean - by(steps, n))), varies = variance(held.map((n) => rewards[n]));
    return [rewards.map((_, n) => by(after, n)), varies > 0 ? 1 - left / varies : 0];
  }

  function plannedOnGraph(policy, rewards, rows, discount) {
    const train = policy.arrays.train.data, planned = (known) => plan(policy.graph, policy.ends.at, policy.ends.to, rewards, train, discount, known);
    const fit = (wide, ...tables) => change(...tables.map((table) => gathered(table, wide, rows)), wide, rewards, train);
    const [seen, sure] = fit(policy.wide, policy.observations, policy.following), known = sure >= EXACT ? seen : null, found = planned(known);
    if (known || found.r2 >= POOR_FIT) return found;
    const [along, r2] = fit(policy.dim, policy.midpoints.latents, policy.nextLatents); // phi may tell steps within a landmark apart
    return r2 > found.r2 ? { ...planned(along), r2 } : found;
  }

  function rewardPrompt(policy, spec, reward, warnings) {
    options(spec, ["reward", "rule", "intercept", "discount"]);
    const { rule = "auto", intercept = false, discount = REWARD_DISCOUNT } = spec;
    if (!["auto", "skill", "goal", "graph"].includes(rule)) throw new Error(`this page follows rewards by auto, skill, goal or graph, not by ${rule}`);
    const onGraph = () => {
      if (!policy.hasGraph) throw new Error(`${policy.note.method} has no graph of its data: use another rule`);
      const rows = policy.rowsOf("graph_rows"), rewards = labelled(policy, reward, rows);
      return graphPrompt(policy, plannedOnGraph(policy, rewards, rows, discount));
    };
    if (rule === "graph") return onGraph();
    const rows = policy.rowsOf("fit_rows"), rewards = labelled(policy, reward, rows);
    if (rule === "goal" || !(policy.has("cumulant") || policy.has("backward"))) {
      let best = 0;
      rewards.forEach((value, n) => { if (value > rewards[best]) best = n; });
      return goalPrompt(policy, { kind: "goal", goal: rowOf(policy.following, policy.wide, rows[best]), plan: 0 });
    }
    const [z, r2] = direction(policy, rewards, rows, intercept);
    if (rule === "auto" && !intercept && policy.hasGraph && policy.graph.isFineEnough) {
      const planned = onGraph();
      if (planned.r2 >= Math.max(0, Math.min(r2 - AS_GOOD, POOR_FIT))) {
        if (planned.r2 < POOR_FIT) warnings.push(`the graph of the data expresses only R^2 = ${rounded(planned.r2)} of this reward (a direction of phi ${rounded(r2)}): the prompt follows the part it can express; prefer smooth rewards of what is observed`);
        return planned;
      }
    }
    if (!intercept && policy.has("cumulant")) warnOfMean(policy, z, rewards, rows, warnings);
    if (r2 < POOR_FIT) warnings.push(`phi expresses only R^2 = ${rounded(r2)} of this reward: the prompt follows the part it can express${policy.hasGraph ? "; the rule 'graph' plans it on the graph of the data" : ""}`);
    return fixed(policy, policy.project(z), { r2 });
  }

  function graphPrompt(policy, planned) {
    const dim = policy.dim;
    return {
      kind: "graph", planned, r2: planned.r2, reset() {},
      skills(states) {
        const here = policy.encode(states), there = new Float32Array(here.length);
        for (let n = 0; n < here.length / dim; n++) there.set(rewardSubgoal(policy.graph, planned, rowOf(here, dim, n), BEST), n * dim);
        return policy.direction(here, there);
      },
    };
  }

  // Pairs (better, worse) of segments: the reward that explains them, by logistic regression.
  function preferPrompt(policy, spec, _, warnings) {
    options(spec, ["pairs"]);
    const wide = policy.note.skill_dim, pairs = spec.pairs || [];
    if (!(policy.has("cumulant") || policy.has("backward"))) throw new Error(`${policy.note.method} has no reward rule, so it cannot learn from preferences`);
    if (!pairs.length) throw new Error("preferences are pairs (better, worse) of segments: give at least one");
    const segment = (rows) => {
      if (rows.length < 2) throw new Error("a segment has at least two observations");
      const flat = Float32Array.from(rows.flat()), s = flat.subarray(0, flat.length - policy.wide), s2 = flat.subarray(policy.wide), sum = new Array(wide).fill(0);
      const found = policy.has("cumulant") ? policy.rule("cumulant", [s, policy.wide], [s2, policy.wide]) : policy.rule("backward", [s2, policy.wide]);
      found.forEach((value, n) => { sum[n % wide] += value; });
      return sum;
    };
    const x = pairs.map(([better, worse]) => { const less = segment(worse); return segment(better).map((value, i) => value - less[i]); });
    const w = logistic(x, wide), inner = (row) => row.reduce((sum, value, i) => sum + value * w[i], 0);
    if (!w.some((value) => value !== 0)) throw new Error("the segments of all pairs have the same features, so the preferences ask for nothing");
    const agreement = x.filter((row) => inner(row) > 0).length / x.length;
    if (agreement < POOR_FIT) warnings.push(`a reward that phi can express explains only ${Math.round(100 * agreement)}% of these ${x.length} preferences`);
    if (policy.has("cumulant")) return fixed(policy, policy.project(w));
    const z = new Array(wide).fill(0);
    for (let n = 0; n < policy.count; n++) { const row = policy.features.subarray(n * wide, (n + 1) * wide), paid = inner(Array.from(row)); row.forEach((value, i) => { z[i] += (value * paid) / policy.count; }); }
    return fixed(policy, policy.project(z));
  }

  // w that makes mean log(1 + exp(-<x, w>)) + ridge / 2 |w|^2 least, on features of unit scale, by Newton's method.
  function logistic(given, wide, ridge = 1e-2) {
    const scale = Math.sqrt(given.flat().reduce((sum, value) => sum + value * value, 0) / (given.length * wide));
    if (!scale) return new Array(wide).fill(0);
    const x = given.map((row) => row.map((value) => value / scale));
    let w = new Array(wide).fill(0);
    for (let turn = 0; turn < 100; turn++) {
      const wrong = x.map((row) => 1 / (1 + Math.exp(Math.max(-500, Math.min(500, row.reduce((sum, value, i) => sum + value * w[i], 0))))));
      const slope = w.map((value, i) => ridge * value - x.reduce((sum, row, n) => sum + row[i] * wrong[n], 0) / x.length);
      const curve = w.map((_, i) => w.map((__, j) => x.reduce((sum, row, n) => sum + row[i] * row[j] * wrong[n] * (1 - wrong[n]), 0) / x.length + (i === j ? ridge : 0)));
      const step = solve(curve, slope);
      w = w.map((value, i) => value - step[i]);
      if (Math.max(...step.map(Math.abs)) < 1e-8) break;
    }
    return w.map((value) => value / scale);
  }

  return { Policy, undiscounted };
})();
