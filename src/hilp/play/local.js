// A backend without a server: the maze and the simulation in the page itself, which speaks the messages of docs/play.md.
"use strict";
window.hilpLocal = (() => {
  const { Policy, undiscounted } = window.hilpPolicy;
  const f32 = Math.fround;

  // ---- the maze, as hilp.tasks.maze has it, in float64 -----------------------------------------------------------------

  const RADIUS = 0.1, STEP = 0.4, TOUCH = 1e-5, REACHED = 0.5;

  class Maze {
    // rows: texts of '#', '.' and doors, row 0 at the top.
    constructor(rows) {
      this.high = rows.length; this.wide = rows[0].length;
      this.cell = (column, row) => rows[this.high - 1 - row][column];
      this.walls = new Uint8Array(this.wide * this.high);
      this.shut = [0, 1, 2, 3].map(() => new Uint8Array(this.walls.length)); // to leave a cell to the right, left, top, bottom
      const sides = [[">", 1, 0], ["<", -1, 0], ["^", 0, 1], ["v", 0, -1]], isDoor = (one) => "<>^v".includes(one);
      for (let column = 0; column < this.wide; column++) for (let row = 0; row < this.high; row++) {
        const here = this.cell(column, row), at = column * this.high + row;
        this.walls[at] = Number(here === "#");
        if (here === "#") continue;
        sides.forEach(([door, right, up], side) => {
          this.shut[side][at] = Number([here, this.cell(column + right, row + up)].some((one) => isDoor(one) && one !== door));
        });
      }
      this.hasDoors = rows.some((row) => /[<>^v]/.test(row));
    }

    #at(table, index) { return table[Math.min(Math.max(index, 0), table.length - 1)]; }

    // Along one axis, stopping at walls, and at doors from the wrong side.
    #advance(start, move, across, axis) {
      const [along, beside] = axis === 0 ? [this.high, 1] : [1, this.high], side = move < 0 ? -1 : 1, end = start + move;
      const front = Math.floor(end + side * RADIUS), ahead = front * along, reach = RADIUS - TOUCH;
      const blocked = [across - reach, across + reach].some((edge) => this.#at(this.walls, ahead + Math.floor(edge) * beside));
      const touching = side > 0 ? Math.max(front - RADIUS, start) : Math.min(front + (1 + RADIUS), start);
      const moved = blocked ? touching : end;
      if (!this.hasDoors) return moved;
      const cell = Math.floor(start), shut = this.#at(this.shut[2 * axis + (side > 0 ? 0 : 1)], cell * along + Math.floor(across) * beside);
      if (!shut || Math.floor(moved) === cell) return moved;
      return side > 0 ? Math.max(cell + (1 - RADIUS), start) : Math.min(cell + RADIUS, start);
    }

    #slide(xy, move, first) {
      const place = [...xy];
      for (const axis of [first, 1 - first]) place[axis] = this.#advance(place[axis], move[axis], place[1 - axis], axis);
      return place;
    }

    step(xy, action) {
      const move = [0, 1].map((axis) => STEP * Math.min(Math.max(action[axis], -1), 1)), moved = this.#slide(xy, move, 0);
      if (moved[0] === xy[0] + move[0] && moved[1] === xy[1] + move[1]) return moved;
      const other = this.#slide(xy, move, 1), way = (to) => Math.abs(to[0] - xy[0]) + Math.abs(to[1] - xy[1]);
      return way(other) > way(moved) + TOUCH ? other : moved;
    }

    isFree([x, y]) {
      if (!(x > 0 && x < this.wide && y > 0 && y < this.high)) return false;
      const span = (middle) => [Math.floor(middle - (RADIUS - 2 * TOUCH)), Math.floor(middle + (RADIUS - 2 * TOUCH))];
      return !span(x).some((column) => span(y).some((row) => this.#at(this.walls, column * this.high + row)));
    }

    start(random) {
      for (;;) { const xy = [random() * this.wide, random() * this.high]; if (this.isFree(xy)) return xy; }
    }
  }

  // Numbers from 0 to 1 of a seed (mulberry32).
  function generator(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let x = Math.imul(state ^ (state >>> 15), state | 1);
      x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
      return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
    };
  }

  // ---- the simulation, as hilp.play.simulation has it --------------------------------------------------------------------

  const SLOTS = 2, MOST_STEPS = 1000, SLOWEST = 0.1, FASTEST = 120, SEGMENT = 25, PAIRS = 50, APART = 0.5, PLANNED = 5, PUSH = 5;
  const rounded = (value, digits) => (Number.isFinite(value) ? Number(value.toFixed(digits)) : null);
  const placed = (xy, digits = 3) => Array.from(xy, (value) => rounded(f32(value), digits));
  const isPlace = (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite);

  class Simulation {
    constructor(note) {
      this.note = note; this.policy = new Policy(note); this.maze = new Maze(note.maze);
      this.agents = []; this.slots = Array.from({ length: SLOTS }, () => ({ prompt: null }));
      this.run = true; this.speed = note.scene.speed; this.steps = 0; this.seed = 0; this.random = generator(1);
      this.field = Array.from(this.policy.arrays.field_rows.data);
    }

    receive(message) {
      const known = { hello: "hello", prompt: "prompt", agents: "begin", move: "move", push: "push", control: "control", segments: "segments" };
      if (!Object.hasOwn(known, message.type)) throw new Error(`there is no message '${message.type}'`);
      return this[known[message.type]](message) || [];
    }

    hello() {
      if (!this.agents.length) this.agents = [this.agent(null, 0, 0)];
      const { following, wide } = this.policy, places = this.field.map((row) => placed(following.subarray(row * wide, row * wide + 2)));
      return [{ ...this.note.scene, field: { places } }];
    }

    prompt({ id, slot = 0, spec }) {
      if (slot !== 0 && slot !== 1) throw new Error(`the slot of a prompt is 0 or 1, not ${slot}`);
      const resolved = spec.kind === "goal" ? { ...spec, goal: this.goal(spec.goal) } : spec;
      const prompt = this.policy.prompt(resolved, spec.kind === "reward" ? this.reward(spec.reward) : null);
      const said = this.understood(spec, prompt);
      this.slots[slot] = { prompt, goal: prompt.kind === "goal" ? prompt.goal : null, plannedAt: -1, way: null };
      for (const agent of this.agents) if (agent.slot === slot) agent.reached = false;
      return [{ type: "prompted", id, slot, spec, ...said, warnings: prompt.warnings }];
    }

    begin({ starts, count = 1, slots }) {
      const wanted = starts || Array.from({ length: count }, () => null), own = slots || wanted.map(() => 0);
      if (!(wanted.length >= 1 && wanted.length <= this.note.scene.agents)) throw new Error(`there are 1 to ${this.note.scene.agents} agents at once`);
      if (own.length !== wanted.length || !own.every((slot) => slot === 0 || slot === 1)) throw new Error("slots are 0 or 1, one for each agent");
      const order = own.map((slot, n) => own.slice(0, n).filter((one) => one === slot).length); // those of two slots begin alike
      this.agents = wanted.map((start, n) => this.agent(start, own[n], order[n]));
      this.forget();
    }

    move({ agent, to }) {
      const old = this.agents[agent];
      if (!old) throw new Error(`there is no agent ${agent}: they are 0 to ${this.agents.length - 1}`);
      const moved = this.agent(this.free(to, "start"), old.slot, agent), slot = this.slots[old.slot];
      moved.start = old.start || moved.start;
      this.agents[agent] = moved;
      slot.plannedAt = -1;
      if (slot.prompt) slot.prompt.reset(agent);
    }

    // All agents are pushed the same way, so that two of them can be compared.
    push({ seed = 0 }) {
      const angle = 2 * Math.PI * generator(seed)(), way = [Math.cos(angle), Math.sin(angle)], most = Math.max(...way.map(Math.abs));
      for (const agent of this.agents) Object.assign(agent, { push: way.map((value) => value / most), pushed: PUSH, reached: false });
    }

    control({ run, speed, seed, restart, step }) {
      if (run !== undefined) this.run = Boolean(run);
      if (speed !== undefined) {
        if (!(speed >= SLOWEST && speed <= FASTEST)) throw new Error(`the speed is a number of steps a second, ${SLOWEST} to ${FASTEST}`);
        this.speed = speed;
      }
      if (seed !== undefined) this.seed = seed;
      if (restart) this.begin({ starts: this.agents.map(({ start }) => start), slots: this.agents.map(({ slot }) => slot) });
      for (let n = 0; n < Math.min(step || 0, MOST_STEPS); n++) this.advance();
    }

    segments({ id, seed = 0 }) {
      const random = generator(seed), { policy } = this, start = this.agents.length ? this.agents[0].start : null, from = this.agent(start, 0, 0).xy;
      const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
      const piece = () => {
        const z = policy.project(Array.from({ length: policy.note.skill_dim }, normal)), rows = [from];
        for (let n = 0; n < SEGMENT; n++) rows.push(this.maze.step(rows[n], policy.act(Float32Array.from(rows[n]), z)));
        return rows.map((row) => placed(row, 4));
      };
      // Of pieces that end at one place nobody can prefer one.
      let states = [piece(), piece()];
      for (let n = 1; n < PAIRS && Math.hypot(...states[0][SEGMENT].map((x, i) => x - states[1][SEGMENT][i])) <= APART; n++) states = [piece(), piece()];
      return [{ type: "segments", id, pair: states.map((rows) => rows.map((row) => placed(row))), states }];
    }

    // ---- names ----

    goal(goal) {
      if (isPlace(goal)) return this.free(goal, "goal");
      const row = /^\s*row:(\d+)\s*$/.exec(goal), { policy } = this;
      if (row && Number(row[1]) < policy.count) return policy.observations.subarray(row[1] * policy.wide, (Number(row[1]) + 1) * policy.wide);
      throw new Error("a goal of this page is a place on its map, or a row of its data such as row:0");
    }

    reward(text) {
      const { named, columns, scene } = this.note;
      if (Object.hasOwn(named, text)) return window.hilpFormulas.read(named[text].reward, columns);
      if (/^\w+$/.test(text) && !Object.hasOwn(columns, text) && !/^\d/.test(text)) throw new Error(`task ${scene.task} has no reward '${text}': ${Object.keys(named).join(", ")}; or give a formula, e.g. 'x - before(x)'`);
      return window.hilpFormulas.read(text, columns);
    }

    // ---- the world ----

    free(place, name) {
      if (isPlace(place) && this.maze.isFree(place)) return place;
      throw new Error(`the ${name} ${JSON.stringify(place)} is not a free position x,y of ${this.note.scene.task}: it is off the map or in a wall`);
    }

    // From a place, or, where it is null, from one that the seed and the number say.
    agent(start, slot, number) {
      const xy = start === null ? this.maze.start(generator(1000 * this.seed + number)) : this.free(start, "start");
      return { xy: [...xy], start, slot, reached: false, push: null, pushed: 0 };
    }

    forget() {
      this.steps = 0;
      for (const slot of this.slots) { slot.plannedAt = -1; if (slot.prompt) slot.prompt.reset(); }
    }

    canMove(agent) { return agent.pushed > 0 || (this.slots[agent.slot].prompt !== null && !agent.reached); }
    get isMoving() { return this.agents.some((agent) => this.canMove(agent)); }

    advance() {
      this.slots.forEach(({ prompt, goal }, number) => {
        const rows = [...this.agents.keys()].filter((n) => this.agents[n].slot === number && this.canMove(this.agents[n]));
        if (!rows.length) return;
        const seen = Float32Array.from(rows.flatMap((n) => this.agents[n].xy));
        const actions = prompt ? this.policy.act(seen, prompt.skills(seen, rows, this.random)) : null;
        rows.forEach((n, k) => {
          const agent = this.agents[n], pushed = agent.pushed > 0;
          agent.xy = this.maze.step(agent.xy, pushed ? agent.push : actions.subarray(2 * k, 2 * k + 2));
          agent.pushed = Math.max(0, agent.pushed - 1);
          agent.reached = !agent.pushed && Boolean(goal) && Math.hypot(f32(agent.xy[0]) - goal[0], f32(agent.xy[1]) - goal[1]) <= REACHED;
        });
      });
      this.steps += 1;
    }

    // ---- what a page shows ----

    frame() {
      const agents = this.agents.map(({ xy, slot, reached }) => ({ place: placed(xy, 4), slot, reached, over: false, state: xy.map(f32) }));
      return { type: "frame", step: this.steps, run: this.run, speed: this.speed, agents, ways: this.slots.map((slot, number) => this.way(slot, number)) };
    }

    // The way of a slot's first agent to its goal, looked at every few steps.
    way(slot, number) {
      const agent = this.agents.find((one) => one.slot === number), { policy } = this;
      if (!agent || !slot.goal || !policy.hasGraph) return null;
      if (slot.plannedAt >= 0 && this.steps - slot.plannedAt < PLANNED) return slot.way;
      slot.plannedAt = this.steps;
      slot.toGoal = slot.toGoal || slot.prompt.toGoal || policy.graph.toGoal(slot.prompt.latent);
      const info = policy.graph.pathInfo(policy.encode(Float32Array.from(agent.xy)), slot.prompt.latent, slot.toGoal);
      const marks = info.path.map((row) => placed(policy.observations.subarray(row * policy.wide, row * policy.wide + 2)));
      slot.way = { path: [placed(agent.xy), ...marks, placed(slot.goal)], steps: Number.isFinite(info.steps) ? info.steps : null, support: info.support, reachable: info.reachable };
      return slot.way;
    }

    understood(spec, prompt) {
      const { policy, field } = this, said = { kind: prompt.kind, goal: null, heat: null, asked: null, r2: null, z: null }, { dim } = policy.has("encode") ? policy : { dim: 0 };
      const latents = () => field.map((row) => policy.nextLatents.subarray(row * dim, (row + 1) * dim));
      if (prompt.goal) said.goal = placed(prompt.goal);
      if (Number.isFinite(prompt.r2)) said.r2 = rounded(prompt.r2, 4);
      if (prompt.goal && policy.has("goal_direction")) {
        const there = new Float32Array(field.length * dim), here = new Float32Array(field.length * dim);
        latents().forEach((own, n) => { here.set(own, n * dim); there.set(prompt.latent, n * dim); });
        said.heat = Array.from(policy.distance(here, there), (far) => rounded(policy.has("discount") ? undiscounted(far, policy.discount) : far, 2));
      } else if (prompt.planned) {
        const { planned } = prompt, worth = planned.model === "potential" ? planned.potential : planned.stateReward;
        said.heat = latents().map((own) => { const { near, shares } = policy.graph.shares(own); return rounded(near.reduce((sum, k, n) => sum + worth[k] * shares[n], 0), 3); });
      } else if (prompt.kind === "skill" && policy.has("encode")) {
        said.heat = latents().map((own) => rounded(own.reduce((sum, value, d) => sum + value * prompt.z[d], 0), 3));
        said.z = Array.from(prompt.z, (value) => rounded(value, 4));
      }
      if (spec.kind === "reward") said.asked = Array.from(policy.overBank(this.asked(spec.reward), field), (value) => rounded(value, 3));
      return said;
    }

    // The reward itself: its potential, where it pays a change of one.
    asked(text) {
      const { named, columns } = this.note, moved = /^\s*(\(.*\)|\w+)\s*-\s*before\((.*)\)\s*$/.exec(text), bare = (one) => one.replace(/^[()]+|[()]+$/g, "");
      if (Object.hasOwn(named, text)) return window.hilpFormulas.read(named[text].shown, columns);
      return moved && bare(moved[1]) === bare(moved[2]) ? window.hilpFormulas.read(moved[2], columns) : this.reward(text);
    }
  }

  // ---- the backend ----------------------------------------------------------------------------------------------------

  const LATE = 0.25; // seconds of steps that are made up for
  const BUSY = 20; // milliseconds of steps in a turn, so that the page stays quick

  // What page.js speaks to: messages go in by `send`, answers and frames out by `receive`, a step whenever one is due.
  function connect(note, receive) {
    const simulation = new Simulation(note), inbox = [];
    let due = 0, changed = false;
    function answer(message) {
      try {
        simulation.receive(message).forEach(receive);
      } catch (error) { receive({ type: "error", message: error.message, id: message.id }); }
    }
    function step(now) {
      if (!simulation.run || !simulation.isMoving) { due = now; return; }
      due = Math.max(due, now - 1000 * LATE);
      const until = performance.now() + BUSY;
      for (; due <= now && simulation.isMoving && performance.now() < until; due += 1000 / simulation.speed) { simulation.advance(); changed = true; }
    }
    function turn(now) {
      requestAnimationFrame(turn);
      while (inbox.length) { changed = true; answer(inbox.shift()); }
      try { step(now); } catch (error) { simulation.run = false; receive({ type: "error", message: error.message }); }
      simulation.policy.warm();
      if (changed && simulation.agents.length) { changed = false; receive(simulation.frame()); }
    }
    requestAnimationFrame(turn);
    return { send: (message) => inbox.push(message), simulation };
  }

  return { connect, Maze };
})();
window.hilpConnect = (receive) => (window.hilpLocal.backend = window.hilpLocal.connect(window.hilpNote, receive));
