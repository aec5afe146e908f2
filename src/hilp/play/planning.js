// Planning in latent space, as hilp.prompts.midpoints, .graph and .graph_reward do it in numpy: midpoints, the graph of
// the data, and rewards on it. Latents are Float32Arrays of `dim` numbers; a table of them lies row after row. Where
// numpy rounds to float32, so does this: whether a state is near enough is a yes or a no.
"use strict";
window.hilpPlanning = (() => {
  const f32 = Math.fround;
  const BEST = 50, MOST_RECURSIONS = 12, TRUST_SHARE = 0.09, MOST_DIRECTED = 256;
  const trustRadius = (discount) => TRUST_SHARE / (1 - discount);
  const undiscounted = (distance, discount) => Math.log(Math.max(1 - (1 - discount) * distance, 1e-6)) / Math.log(discount);
  const rowOf = (table, dim, row) => table.subarray(row * dim, (row + 1) * dim);

  const apart = (a, b) => f32(Math.sqrt(sum32(Float32Array.from(a, (value, d) => f32(value - b[d]) ** 2))));

  // Positions of the `count` smallest values, in no order: those kept so far are a heap, the largest on top.
  function smallest(values, count) {
    const kept = new Int32Array(Math.min(count, values.length)).map((_, n) => n), last = kept.length - 1;
    const sink = (at) => {
      const own = kept[at];
      for (let child = 2 * at + 1; child <= last; child = 2 * at + 1) {
        if (child < last && values[kept[child + 1]] > values[kept[child]]) child += 1;
        if (values[kept[child]] <= values[own]) break;
        kept[at] = kept[child]; at = child;
      }
      kept[at] = own;
    };
    for (let at = last >> 1; at >= 0; at--) sink(at);
    for (let n = kept.length, most = values[kept[0]]; n < values.length; n++) {
      if (values[n] < most) { kept[0] = n; sink(0); most = values[kept[0]]; }
    }
    return kept;
  }

  function meanOf(table, dim, rows) {
    const sum = new Float64Array(dim);
    for (const row of rows) for (let d = 0; d < dim; d++) sum[d] += table[row * dim + d];
    return Float32Array.from(sum, (value) => value / rows.length);
  }

  // The sum of up to 128 numbers in float32, in the order in which numpy adds them up.
  function sum32(values) {
    const parts = values.length < 8 ? [0] : Array.from(values.subarray(0, 8)), end = values.length - (values.length % 8);
    for (let n = 8; n < end; n++) parts[n % 8] = f32(parts[n % 8] + values[n]);
    const two = (n) => f32(parts[n] + parts[n + 1]);
    let sum = values.length < 8 ? 0 : f32(f32(two(0) + two(2)) + f32(two(4) + two(6)));
    for (let n = end; n < values.length; n++) sum = f32(sum + values[n]);
    return sum;
  }

  // ---- midpoints ----------------------------------------------------------------------------------------------------

  class Midpoints {
    // distance: of methods whose way back is another way, from rows of latents to rows of latents.
    constructor(latents, dim, distance = null) {
      this.latents = this.states = latents; this.dim = dim; this.count = latents.length / dim; this.distance = distance; this.share = 1;
      this.byDimension = Array.from({ length: dim }, (_, d) => Float32Array.from({ length: this.count }, (_, n) => latents[n * dim + d]));
      this.squares = Float32Array.from({ length: this.count }, (_, n) => {
        let sum = 0;
        for (let d = 0; d < dim; d++) sum += latents[n * dim + d] ** 2;
        return sum;
      });
      if (!distance) return;
      const every = Math.max(1, Math.ceil(this.count / MOST_DIRECTED)), kept = Math.ceil(this.count / every);
      this.states = new Float32Array(kept * dim);
      for (let n = 0; n < kept; n++) this.states.set(rowOf(latents, dim, n * every), n * dim);
      this.share = kept / Math.max(1, this.count);
    }

    // Distances from one latent to rows of others, or `back`: from them to it.
    apart(here, rows, back = false) {
      const count = rows.length / this.dim;
      if (!this.distance) return Float32Array.from({ length: count }, (_, n) => apart(here, rowOf(rows, this.dim, n)));
      const all = new Float32Array(rows.length);
      for (let n = 0; n < count; n++) all.set(here, n * this.dim);
      return back ? this.distance(rows, all) : this.distance(all, rows);
    }

    squareDistances(point) {
      const found = new Float32Array(this.count);
      let own = 0;
      for (let d = 0; d < this.dim; d++) {
        const value = point[d], column = this.byDimension[d];
        own += value * value;
        for (let n = 0; n < found.length; n++) found[n] += value * column[n];
      }
      own = f32(own);
      for (let n = 0; n < found.length; n++) found[n] = Math.max(f32(this.squares[n] - 2 * found[n]) + own, 0);
      return found;
    }

    #table(here, from) {
      return this.distance ? this.apart(here, this.states, !from) : this.squareDistances(here);
    }

    // The latent to head for from `here` on the way to `goal`; recursions: a number, or "auto" until within `radius`.
    subgoal(here, goal, recursions, best, radius) {
      const auto = recursions === "auto", kept = this.states.length / this.dim;
      const count = Math.min(kept, Math.max(1, roundHalfEven(best * this.share)));
      let u = Float32Array.from(goal), fromHere = null;
      for (let depth = 0; depth < (auto ? MOST_RECURSIONS : recursions); depth++) {
        if (auto && !((this.distance ? this.distance(here, u)[0] : apart(u, here)) > radius)) break;
        fromHere = fromHere || this.#table(here, true);
        const cost = this.#table(u, false);
        for (let n = 0; n < cost.length; n++) cost[n] = Math.max(cost[n], fromHere[n]);
        u = meanOf(this.states, this.dim, smallest(cost, count));
      }
      return u;
    }
  }

  const roundHalfEven = (value) => { const low = Math.floor(value), over = value - low; return over > 0.5 || (over === 0.5 && low % 2) ? low + 1 : low; };

  // ---- what an agent has tried --------------------------------------------------------------------------------------

  const REACHES = [0.7, 0.7, 0.35, 0.7], RANDOM = [false, true, false, true], WAITS = [2, 1, 1, 1], LEAST = 3, PROGRESS = 0.5;
  const fresh = () => ({ nearest: Infinity, triedAt: Infinity, waited: 0, level: 0, headsFor: -1, here: null });

  // The radius within which an agent chooses its subgoal, and whether at random: when it no longer gets nearer.
  function reach(memory, trust, steps, here, stepsLeft) {
    if (memory.here && apart(here, memory.here) > trust) Object.assign(memory, fresh());
    memory.here = Float32Array.from(here);
    const nearer = stepsLeft < memory.nearest - PROGRESS;
    if (nearer) memory.nearest = stepsLeft;
    memory.waited = nearer ? 0 : memory.waited + 1;
    if (stepsLeft < memory.triedAt - steps) memory.level = 0;
    if (memory.waited > steps * WAITS[memory.level]) {
      Object.assign(memory, { level: (memory.level + 1) % REACHES.length, waited: 0, headsFor: -1, nearest: stepsLeft, triedAt: stepsLeft });
    }
    return [trust * REACHES[memory.level], RANDOM[memory.level]];
  }

  // ---- the graph of the data ----------------------------------------------------------------------------------------

  const NEIGHBOURS = 4, GUESS = 1e6, BEST_SHARE = 0.1, FEW = 3, LEAST_AROUND = 10, COARSE = 0.5;

  class Graph {
    // graph: { landmarks, radius, first, target, steps, counts }; edges of landmark k are first[k] to first[k + 1].
    constructor(graph, bank, discount) {
      Object.assign(this, graph);
      this.bank = bank; this.discount = discount; this.dim = bank.dim; this.count = graph.landmarks.length;
      this.trust = trustRadius(discount);
      this.stuckSteps = Math.max(LEAST, undiscounted(this.trust, discount));
      this.latents = new Float32Array(this.count * this.dim);
      graph.landmarks.forEach((row, n) => this.latents.set(rowOf(bank.latents, this.dim, row), n * this.dim));
      this.center = new Float32Array(this.dim);
      this.latents.forEach((value, n) => { this.center[n % this.dim] += value; });
      this.center = this.center.map((value) => value / this.count);
      this.others = this.latents.map((value, n) => value - this.center[n % this.dim]);
      this.squares = Float32Array.from({ length: this.count }, (_, n) => sum32(rowOf(this.others, this.dim, n).map((value) => value * value)));
      if (bank.distance) { // no edge takes fewer steps than the method's own distance says
        this.steps = Float32Array.from(graph.steps);
        for (let k = 0; k < this.count; k++) {
          const edges = graph.target.subarray(this.first[k], this.first[k + 1]);
          this.#stepsTo(rowOf(this.latents, this.dim, k), edges).forEach((steps, n) => { this.steps[this.first[k] + n] = Math.max(graph.steps[this.first[k] + n], steps); });
        }
      }
      this.prices = Float32Array.from(this.steps, (steps, edge) => (graph.counts[edge] > 0 ? steps : GUESS + steps));
      this.backwards = Array.from({ length: this.count }, () => []);
      for (let k = 0; k < this.count; k++) for (let edge = this.first[k]; edge < this.first[k + 1]; edge++) this.backwards[this.target[edge]].push(k, edge);
    }

    get isFineEnough() { return this.radius <= COARSE * this.trust; }

    // Steps from a latent to some landmarks, or `back`: from them to it.
    #stepsTo(point, landmarks, back = false) {
      if (!landmarks.length) return new Float64Array(0);
      const rows = new Float32Array(landmarks.length * this.dim);
      landmarks.forEach((k, n) => rows.set(rowOf(this.latents, this.dim, k), n * this.dim));
      return Float64Array.from(this.bank.apart(point, rows, back), (far) => undiscounted(far, this.discount));
    }

    // The landmarks nearest to a latent, the nearest first, how far they are, and steps to them, or `back` from them.
    nearest(point, back = false) {
      const { dim, others, squares, count } = this, wanted = Math.min(NEIGHBOURS, count);
      const off = Float32Array.from(point, (value, d) => value - this.center[d]);
      const near = new Int32Array(wanted).fill(-1), least = new Float64Array(wanted).fill(Infinity);
      for (let n = 0, at = 0; n < count; n++) {
        let value = 0;
        for (let d = 0; d < dim; d++) value = f32(value - 2 * off[d] * others[at++]);
        value = f32(value + squares[n]);
        if (!(value < least[wanted - 1])) continue;
        let place = wanted - 1;
        for (; place > 0 && value < least[place - 1]; place--) { least[place] = least[place - 1]; near[place] = near[place - 1]; }
        least[place] = value; near[place] = n;
      }
      const far = Float32Array.from(near, (n) => apart(point, rowOf(this.latents, dim, n)));
      const steps = this.bank.distance ? this.#stepsTo(point, near, back) : Float64Array.from(far, (value) => undiscounted(value, this.discount));
      return { near, apart: far, steps };
    }

    // Where each state of the bank lies on the graph.
    get placed() {
      if (!this.cached) {
        const wide = Math.min(NEIGHBOURS, this.count), near = new Int32Array(this.bank.count * wide), steps = new Float32Array(this.bank.count * wide);
        for (let row = 0; row < this.bank.count; row++) {
          const found = this.nearest(rowOf(this.bank.latents, this.dim, row));
          near.set(found.near, row * wide);
          steps.set(found.steps, row * wide);
        }
        this.cached = { wide, near, steps };
      }
      return this.cached;
    }

    #lastLegs(goal) {
      const { near, apart: far, steps } = this.nearest(goal, true), least = Math.min(...far), found = new Float64Array(this.count).fill(Infinity);
      near.forEach((k, n) => {
        if (far[n] <= 2 * this.radius || far[n] <= least) found[k] = Math.max(steps[n], 1e-3);
      });
      return found;
    }

    // Steps from every landmark to a goal, by Dijkstra's search backwards from it.
    toGoal(goal) {
      const steps = this.#lastLegs(goal), heap = [], done = new Uint8Array(this.count);
      const push = (cost, k) => {
        let at = heap.push([cost, k]) - 1;
        for (let up = (at - 1) >> 1; at > 0 && heap[up][0] > cost; at = up, up = (at - 1) >> 1) { heap[at] = heap[up]; heap[up] = [cost, k]; }
      };
      const pop = () => {
        const top = heap[0], last = heap.pop();
        if (!heap.length) return top;
        let at = 0;
        for (let child = 1; child < heap.length; child = 2 * at + 1) {
          if (child + 1 < heap.length && heap[child + 1][0] < heap[child][0]) child += 1;
          if (heap[child][0] >= last[0]) break;
          heap[at] = heap[child]; at = child;
        }
        heap[at] = last;
        return top;
      };
      steps.forEach((cost, k) => Number.isFinite(cost) && push(cost, k));
      while (heap.length) {
        const [cost, k] = pop();
        if (done[k]) continue;
        done[k] = 1;
        const into = this.backwards[k];
        for (let n = 0; n < into.length; n += 2) {
          const by = cost + this.prices[into[n + 1]];
          if (by < steps[into[n]]) { steps[into[n]] = by; push(by, into[n]); }
        }
      }
      return Float32Array.from(steps);
    }

    stepsLeft(here, goal, toGoal) {
      const straight = this.bank.apart(here, goal)[0];
      if (straight <= this.trust) return undiscounted(straight, this.discount);
      const { near, steps } = this.nearest(here);
      return Math.min(...Array.from(near, (k, n) => toGoal[k] + steps[n]));
    }

    // States of the bank within reach of a latent, or the nearest few, and steps to them.
    around(here, radius) {
      const squares = this.bank.squareDistances(here), limit = radius ** 2;
      let states = [];
      for (let n = 0; n < squares.length; n++) if (squares[n] <= limit) states.push(n);
      if (states.length < LEAST_AROUND) states = Array.from(smallest(squares, Math.min(LEAST_AROUND, squares.length)));
      let far = Float32Array.from(states, (row) => Math.sqrt(squares[row]));
      if (this.bank.distance) { // what lies behind a door is not within reach
        const all = new Float32Array(states.length * this.dim);
        states.forEach((row, n) => all.set(rowOf(this.bank.latents, this.dim, row), n * this.dim));
        far = this.bank.apart(here, all);
        const few = Float64Array.from(far).sort(), limit = Math.max(radius, few[Math.min(LEAST_AROUND, few.length) - 1]);
        states = states.filter((_, n) => far[n] <= limit); far = far.filter((value) => value <= limit);
      }
      return { states, steps: Float64Array.from(far, (value) => undiscounted(value, this.discount)) };
    }

    meanOfBest(states, costs, best) {
      const count = Math.min(best, states.length, Math.max(FEW, Math.ceil(BEST_SHARE * states.length)));
      return meanOf(this.bank.latents, this.dim, Array.from(smallest(costs, count), (n) => states[n]));
    }

    // The latent to head for: of the states around an agent the mean of those nearest to the goal by way of the graph.
    subgoal(here, goal, toGoal, best, memory, random) {
      const left = this.stepsLeft(here, goal, toGoal), straight = this.bank.apart(here, goal)[0];
      const [radius, atRandom] = reach(memory, this.trust, this.stuckSteps, here, left);
      if (!atRandom && straight <= radius) return goal;
      const { states } = this.around(here, radius), { wide, near, steps } = this.placed;
      if (atRandom) {
        if (memory.headsFor < 0) memory.headsFor = states[Math.floor(random() * states.length)];
        return rowOf(this.bank.latents, this.dim, memory.headsFor);
      }
      const costs = Float32Array.from(states, (row) => {
        let least = Infinity;
        for (let n = row * wide; n < (row + 1) * wide; n++) least = Math.min(least, f32(toGoal[near[n]] + steps[n]));
        return least;
      });
      const least = costs.reduce((a, b) => Math.min(a, b), Infinity);
      return least < (straight <= this.trust ? left : Infinity) ? this.meanOfBest(states, costs, best) : goal;
    }

    // What the graph says about a way before acting.
    pathInfo(here, goal, toGoal) {
      const straight = this.bank.apart(here, goal)[0], last = this.#lastLegs(goal), { near, apart: far, steps: legs } = this.nearest(here);
      if (straight <= this.radius) return { path: [], steps: undiscounted(straight, this.discount), support: null, reachable: "yes" };
      let at = -1, total = Infinity;
      near.forEach((k, n) => { const steps = toGoal[k] + legs[n]; if (steps < total) { total = steps; at = k; } });
      if (at < 0) return { path: [], steps: Infinity, support: 0, reachable: "no" };
      const path = [at];
      let support = null;
      while (last[at] > toGoal[at] * (1 + 1e-5) && path.length < this.count) {
        let taken = -1, least = Infinity;
        for (let edge = this.first[at]; edge < this.first[at + 1]; edge++) {
          const cost = this.prices[edge] + toGoal[this.target[edge]];
          if (cost < least) { least = cost; taken = edge; }
        }
        at = this.target[taken];
        support = support === null ? this.counts[taken] : Math.min(support, this.counts[taken]);
        path.push(at);
      }
      const guesses = Math.floor(total / GUESS), offGoal = this.nearest(goal).apart[0];
      const off = Math.max(far[0], offGoal) > 2 * this.radius;
      return { path: path.map((k) => this.landmarks[k]), steps: total - guesses * GUESS, support, reachable: guesses || off ? "unknown" : "yes" };
    }

    // A latent as a weighted mean of the landmarks around it.
    shares(point) {
      const { near, steps } = this.nearest(point), weights = Float64Array.from(steps, (value) => 1 / (value + 0.5) ** 2);
      const total = weights.reduce((a, b) => a + b, 0);
      return { near, shares: weights.map((value) => value / total) };
    }

    // The same for a table of latents, as a sparse matrix of `wide` numbers a row.
    sharesOf(table) {
      const rows = table.length / this.dim, wide = Math.min(NEIGHBOURS, this.count), near = new Int32Array(rows * wide), shares = new Float64Array(rows * wide);
      for (let row = 0; row < rows; row++) {
        const own = this.shares(rowOf(table, this.dim, row));
        near.set(own.near, row * wide); shares.set(own.shares, row * wide);
      }
      return { rows, wide, near, shares };
    }

    // Weights of the landmarks around a state of the bank, in float32 as numpy has them.
    bankShares(row) {
      const { wide, steps } = this.placed, weights = new Float32Array(wide);
      let total = 0;
      for (let n = 0; n < wide; n++) { weights[n] = 1 / f32(f32(steps[row * wide + n] + 0.5) ** 2); total = f32(total + weights[n]); }
      return weights.map((value) => value / total);
    }
  }

  // ---- rewards on it ------------------------------------------------------------------------------------------------

  const MODELS = ["state_reward", "potential", "both"], DAMPING = 0.3, AS_GOOD = 0.02, POOR_FIT = 0.7, SOLVER_STEPS = 200, SWEEPS = 3000, ENOUGH = 1e-4, TOLERANCE = 1e-6;
  const norm = (x) => { let sum = 0; for (const value of x) sum += value * value; return Math.sqrt(sum); };

  function variance(values) {
    let mean = 0, sum = 0;
    for (const value of values) mean += value / values.length;
    for (const value of values) sum += (value - mean) ** 2 / values.length;
    return sum;
  }

  // to @ rho + (to - at) @ u of some rows, and the same turned about; at and to as `sharesOf` gives them.
  function modelOf(at, to, rows, count, model) {
    const pays = model !== "potential", gets = model !== "state_reward", { wide } = to;
    return {
      size: 2 * count,
      times(x) {
        return Float64Array.from(rows, (row) => {
          let sum = 0;
          for (let n = row * wide; n < (row + 1) * wide; n++) {
            if (pays) sum += to.shares[n] * x[to.near[n]];
            if (gets) sum += to.shares[n] * x[count + to.near[n]] - at.shares[n] * x[count + at.near[n]];
          }
          return sum;
        });
      },
      turned(y) {
        const found = new Float64Array(2 * count);
        rows.forEach((row, k) => {
          for (let n = row * wide; n < (row + 1) * wide; n++) {
            if (pays) found[to.near[n]] += to.shares[n] * y[k];
            if (!gets) continue;
            found[count + to.near[n]] += to.shares[n] * y[k];
            found[count + at.near[n]] -= at.shares[n] * y[k];
          }
        });
        return found;
      },
    };
  }

  // x that makes |A x - b|^2 + damp^2 |x|^2 small, by LSQR (Paige and Saunders 1982), with the stopping rules of SciPy's.
  function leastSquares(matrix, b, damp, limit) {
    let x = new Float64Array(matrix.size), beta = norm(b), normA = 0, left = 0;
    if (!beta) return x;
    let u = b.map((value) => value / beta), v = matrix.turned(u), alpha = norm(v);
    if (!alpha) return x;
    v = v.map((value) => value / alpha);
    const w = v.slice(), size = beta;
    let diagonal = alpha, rest = beta;
    for (let turn = 0; turn < limit; turn++) {
      u = matrix.times(v).map((value, n) => value - alpha * u[n]);
      beta = norm(u);
      if (beta > 0) {
        u = u.map((value) => value / beta);
        normA = Math.sqrt(normA ** 2 + alpha ** 2 + beta ** 2 + damp ** 2);
        v = matrix.turned(u).map((value, n) => value - beta * v[n]);
        alpha = norm(v);
        if (alpha > 0) v = v.map((value) => value / alpha);
      }
      const damped = Math.sqrt(diagonal ** 2 + damp ** 2), lost = (damp / damped) * rest;
      rest *= diagonal / damped;
      const rho = Math.hypot(damped, beta), cosine = damped / rho, sine = beta / rho, theta = sine * alpha, phi = cosine * rest;
      diagonal = -cosine * alpha; rest *= sine;
      for (let n = 0; n < x.length; n++) { x[n] += (phi / rho) * w[n]; w[n] = v[n] - (theta / rho) * w[n]; }
      left += lost * lost;
      const residual = Math.sqrt(rest * rest + left);
      if (alpha * Math.abs(sine * phi) <= TOLERANCE * normA * residual) break;
      if (residual / size <= TOLERANCE + (TOLERANCE * normA * norm(x)) / size) break;
    }
    return x;
  }

  // What a reward is worth on every landmark. train: of which rows the model is chosen, the others being held out. known:
  // u(s') of a reward that is a change of it, or null.
  function plan(graph, at, to, rewards, train, discount, known) {
    const count = graph.count, mean = rewards.reduce((sum, value) => sum + value, 0) / rewards.length, deviation = Math.sqrt(variance(rewards));
    const wanted = rewards.map((value) => (value - mean) / deviation), all = [...rewards.keys()];
    const fit = (model, rows) => leastSquares(modelOf(at, to, rows, count, model), Float64Array.from(rows, (row) => wanted[row]), DAMPING, SOLVER_STEPS);
    const shown = all.filter((row) => train[row]), held = all.filter((row) => !train[row]);
    const varies = variance(held.map((row) => wanted[row])), scores = MODELS.map(() => 0);
    if (varies > 0) MODELS.forEach((model, n) => {
      const said = modelOf(at, to, held, count, model).times(fit(model, shown));
      scores[n] = 1 - variance(held.map((row, k) => wanted[row] - said[k])) / varies;
    });
    const chosen = scores.findIndex((score) => score >= Math.max(...scores) - AS_GOOD), model = MODELS[chosen];
    if (known && (model !== "potential" || scores[chosen] < POOR_FIT)) {
      const middle = known.reduce((sum, value) => sum + value, 0) / known.length, spread = Math.sqrt(variance(known));
      const onLandmarks = (rows) => leastSquares(modelOf(at, to, rows, count, "state_reward"), Float64Array.from(rows, (row) => (known[row] - middle) / spread), DAMPING, SOLVER_STEPS);
      const told = modelOf(at, to, held, count, "state_reward").times(onLandmarks(shown)), own = held.map((row) => (known[row] - middle) / spread);
      const potential = onLandmarks(all).slice(0, count).map((value) => value * spread + middle), stateReward = new Float64Array(count).fill(mean);
      return { stateReward, potential, values: valuesOf(graph, stateReward, potential, discount), discount, r2: 1 - variance(own.map((value, k) => value - told[k])) / variance(own), model: "potential" };
    }
    const x = fit(model, all);
    const stateReward = x.slice(0, count).map((value) => value * deviation + mean), potential = x.slice(count).map((value) => value * deviation);
    return { stateReward, potential, values: valuesOf(graph, stateReward, potential, discount), discount, r2: scores[chosen], model };
  }

  // Value iteration over staying where one is and taking an edge, which lasts as many steps as it has.
  function valuesOf(graph, stateReward, potential, discount) {
    const seen = graph.counts.some((count) => count > 0), staying = stateReward.map((value) => value / (1 - discount));
    const later = new Float64Array(graph.target.length), earned = new Float64Array(graph.target.length).fill(-Infinity);
    for (let k = 0; k < graph.count; k++) for (let edge = graph.first[k]; edge < graph.first[k + 1]; edge++) {
      if (seen && !graph.counts[edge]) continue;
      const to = graph.target[edge];
      later[edge] = discount ** graph.steps[edge];
      earned[edge] = ((1 - later[edge]) / (1 - discount)) * 0.5 * (stateReward[k] + stateReward[to]) + Math.sqrt(later[edge]) * (potential[to] - potential[k]);
    }
    let values = staying;
    for (let sweep = 0; sweep < (graph.target.length ? SWEEPS : 0); sweep++) {
      let change = 0, low = Infinity, high = -Infinity;
      const found = staying.map((value, k) => {
        for (let edge = graph.first[k]; edge < graph.first[k + 1]; edge++) value = Math.max(value, earned[edge] + later[edge] * values[graph.target[edge]]);
        change = Math.max(change, Math.abs(value - values[k])); low = Math.min(low, value); high = Math.max(high, value);
        return value;
      });
      values = found;
      if (change <= ENOUGH * Math.max(high - low, 1e-12)) break;
    }
    return values;
  }

  // The latent to head for under a reward: of the states around, the mean of those that are worth most.
  function rewardSubgoal(graph, planned, here, best) {
    const { near, shares } = graph.shares(here), { wide, near: placed } = graph.placed, { discount } = planned;
    const mixed = (column, at, weights, first = 0) => { let sum = 0; for (let n = 0; n < weights.length; n++) sum += column[at[first + n]] * weights[n]; return sum; };
    const pays = mixed(planned.stateReward, near, shares), height = mixed(planned.potential, near, shares);
    const { states, steps } = graph.around(here, graph.trust);
    const costs = Float64Array.from(states, (row, n) => {
      const weights = graph.bankShares(row), of = (column) => mixed(column, placed, weights, row * wide), later = discount ** steps[n];
      const onTheWay = ((1 - later) / (1 - discount)) * 0.5 * (pays + of(planned.stateReward));
      return -(onTheWay + Math.sqrt(later) * (of(planned.potential) - height) + later * of(planned.values));
    });
    return graph.meanOfBest(states, costs, best);
  }

  return { BEST, GUESS, Midpoints, Graph, fresh, apart, undiscounted, trustRadius, rowOf, variance, plan, rewardSubgoal, AS_GOOD, POOR_FIT };
})();
