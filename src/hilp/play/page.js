// The page of the playground: what is asked, what is shown, and the hands on it. It speaks the messages of docs/play.md.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const draw = window.hilpDraw, home = window.hilpHome;
  const LONGEST = 2000; // characters of a formula
  const ACTIONS = ["goal", "reward", "skill", "follow", "prefer"];
  const state = {
    scene: null, frame: null, mode: "goal", specs: [null, null], said: [null, null], asked: 0, pending: {}, paint: [], path: [],
    pairs: [], shown: [], trails: [], heated: null, background: null, cursor: null, sign: 1, drag: null, weights: [], news: "",
  };

  // ---- the backend ------------------------------------------------------------------------------------------------

  // What is sent goes to the server, what comes from it goes to `receive`. A script before this one may set
  // window.hilpConnect to another function of this kind: an exported page simulates by itself.
  function connect(receive) {
    let socket = null, waiting = [], delay = 500;
    const send = (message) => { if (socket) socket.send(JSON.stringify(message)); else waiting.push(message); };
    const open = () => {
      const address = new URL("/socket" + location.search, location.href.replace(/^http/, "ws")), fresh = new WebSocket(address);
      fresh.onopen = () => { socket = fresh; delay = 500; waiting.splice(0).forEach(send); };
      fresh.onmessage = (event) => receive(JSON.parse(event.data));
      fresh.onclose = () => {
        receive({ type: "error", message: "the server is gone: start `hilp play` again" });
        socket = null; waiting = [{ type: "hello", version: 1 }]; // a new server is told what this page remembers
        setTimeout(open, delay); delay = Math.min(10000, 2 * delay);
      };
    };
    open();
    return { send };
  }

  const backend = (window.hilpConnect || connect)(receive);
  const send = (type, fields = {}) => backend.send({ type, ...fields });
  const has = (mode) => state.scene.modes.includes(mode);

  function receive(message) {
    redraw();
    if (message.type === "scene") begin(message);
    else if (message.type === "frame") framed(message);
    else if (message.type === "prompted") prompted(message);
    else if (message.type === "segments") choose(message);
    else if (message.type === "error") { delete state.pending[message.id]; say(message.message, true); }
  }

  function say(text, wrong = false) {
    if ($("status").textContent === text) return;
    $("status").textContent = text;
    $("status").classList.toggle("error", wrong);
  }

  // ---- prompts ----------------------------------------------------------------------------------------------------

  // With a rival, both policies are asked the same; otherwise the second slot keeps a prompt to compare with.
  function ask(spec, extra = {}, slot = 0) {
    const both = slot === 0 && state.scene.rival && $("compare").checked;
    for (const one of both ? [0, 1] : [slot]) {
      state.pending[++state.asked] = spec;
      send("prompt", { id: state.asked, slot: one, spec, ...extra });
    }
  }

  const round = (value, digits = 2) => Number(value.toFixed(digits));
  const withPlan = (spec) => ({ ...spec, plan: /^\d+$/.test($("plan").value) ? Number($("plan").value) : $("plan").value });

  function askGoal(place) {
    const [x, y] = place.map((value) => round(value));
    if (has("place")) return ask(withPlan({ kind: "goal", goal: state.scene.observation_dim === 2 ? [x, y] : `x=${x},y=${y}` }));
    const far = (one) => Math.hypot(one.place[0] - x, one.place[1] - y);
    askRow(state.scene.states.reduce((best, one) => (far(one) < far(best) ? one : best)).row);
  }

  function askRow(row) {
    ask(withPlan({ kind: "goal", goal: `row:${row}` }));
    for (const button of $("strip").children) button.setAttribute("aria-pressed", Number(button.dataset.row) === row);
  }

  const minus = (name, value) => (value < 0 ? `(${name}+${-value})` : `(${name}-${value})`);

  function paintFormula(dabs) {
    const group = (sign) => {
      const terms = dabs.filter((dab) => dab[3] === sign).map(([x, y, r]) => `${minus("x", x)}**2+${minus("y", y)}**2<${round(r * r, 4)}`);
      return terms.length ? `max(${terms.length > 1 ? terms.join(",") : terms[0] + ",0"})` : "";
    };
    const plus = group(1), less = group(-1);
    return plus + (less ? `-${less}` : "");
  }

  function askReward(text, extra = {}) {
    const rule = $("rule").value;
    ask({ kind: "reward", reward: text, ...(rule !== "auto" ? { rule } : {}) }, extra);
  }

  function askPaint() {
    if (!state.paint.length) return;
    $("formula").value = paintFormula(state.paint);
    askReward($("formula").value, { paint: state.paint });
  }

  function dab([x, y]) {
    const unit = state.scene.map.radius, radius = round(Number($("brush").value) * unit);
    const near = state.paint.some((d) => d[3] === state.sign && Math.hypot(d[0] - x, d[1] - y) < 0.7 * radius);
    if (near) return;
    const wanted = [...state.paint, [round(x), round(y), radius, state.sign]];
    if (paintFormula(wanted).length > LONGEST) return say("the painting is full: take a larger brush, or clear it", true);
    state.paint = wanted;
  }

  function askSkill() {
    const { axes, dim } = state.scene.skill;
    const z = Array(dim).fill(0);
    state.weights.forEach((weight, n) => axes[n].forEach((value, at) => { z[at] += weight * value; }));
    if (!z.some((value) => Math.abs(value) > 1e-6)) return;
    ask({ kind: "skill", z: z.map((value) => round(value, 5)) });
  }

  function prompted(message) {
    state.said[message.slot] = message;
    state.specs[message.slot] = message.slot && state.scene.rival ? message.spec : state.pending[message.id] || message.spec;
    delete state.pending[message.id];
    state.news = "";
    remember();
    if (message.slot === 0) {
      const signed = message.kind !== "goal" || Boolean(message.asked);
      state.heated = message.heat ? heatOf(message.heat, signed) : null;
      legend(message, signed);
      $("r2").textContent = message.r2 === null ? "–" : message.r2.toFixed(2);
      const kinds = { goal: "a goal", skill: "a direction", graph: "the graph", follow: "a path", sum: "a sum", then: "one after the other" };
      $("kind").textContent = kinds[message.kind] || message.kind;
      small($("asked"), message.asked && heatOf(message.asked, true));
      small($("understood"), message.asked && message.heat && heatOf(message.heat, true));
      const warning = message.warnings[0];
      say(warning || { goal: "on the way to the goal", reward: "following the reward", skill: "following the skill", follow: "following the path", prefer: "following what you prefer" }[state.mode] || "");
    }
    if (message.slot === 0 && $("compare").checked) return;
    state.trails = state.trails.map(() => []);
  }

  function legend(message, signed) {
    const [less, more] = !signed ? ["near", "far"] : message.asked ? ["costs", "pays"] : ["away", "along"];
    $("less").textContent = less; $("more").textContent = more;
    $("ramp").classList.toggle("signed", signed);
    $("legend").hidden = !message.heat;
  }

  // ---- taking it home ---------------------------------------------------------------------------------------------

  const starts = (slot) => (state.frame ? state.frame.agents : []).filter((agent) => agent.slot === slot).map((agent) => (has("place") ? agent.state : null));
  const asked = () => [0, 1].filter((slot) => state.specs[slot] && starts(slot).length).map((slot) => (
    { run: slot && state.scene.rival ? state.scene.rival.run : state.scene.run, task: state.scene.named, spec: state.specs[slot], starts: starts(slot) }));

  async function copy(text, what) {
    $("code").value = text;
    $("code").hidden = false;
    try {
      await navigator.clipboard.writeText(text);
      say(`${what} copied`);
    } catch {
      $("code").focus(); $("code").select();
      say(`${what} is below: copy it with ctrl-c`);
    }
  }

  const ready = () => asked().length > 0 || (say("prompt the agent first", true), false);
  $("copy-python").onclick = () => ready() && copy(home.asPython(asked()), "Python");
  $("copy-shell").onclick = () => ready() && copy(home.asShell(asked()), "the command");
  $("copy-link").onclick = () => { remember(true); copy(location.href, "the link"); };
  $("save").onclick = () => {
    if (!ready()) return;
    home.save("prompt.json", "application/json", JSON.stringify(state.specs[0]) + "\n");
    say("saved prompt.json: hilp.prompts.specs.from_json reads it");
  };

  const film = home.film(() => {
    const cameras = [...document.querySelectorAll("#cameras img")].filter((image) => !image.hidden && image.complete);
    return cameras.length ? cameras : [$("map")];
  });
  $("film").onclick = () => {
    if (film.isOn()) { const frames = film.stop(); say(`saved hilp.gif: ${frames} frames`); }
    else film.start();
    $("film").textContent = film.isOn() ? "Save GIF" : "Film";
    $("film").setAttribute("aria-pressed", film.isOn());
  };

  // What a link and a reload keep: prompts, paint and where the agents are.
  let later = 0;
  function remember(now = false) {
    clearTimeout(later);
    const write = () => {
      const kept = { mode: state.mode, specs: state.specs, paint: state.paint, path: state.path, pairs: state.pairs,
        agents: [0, 1].map(starts), run: !state.frame || state.frame.run, speed: Number($("speed").value) };
      history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(kept)));
    };
    if (now) write(); else later = setTimeout(write, 300);
  }

  function recall() {
    try {
      const kept = JSON.parse(decodeURIComponent(location.hash.slice(1)));
      if (has(kept.mode)) show(kept.mode);
      state.paint = kept.paint || []; state.path = kept.path || []; state.pairs = kept.pairs || [];
      $("compare").checked = Boolean(kept.specs[1]);
      $("speed").value = kept.speed;
      send("control", { run: kept.run, speed: Number($("speed").value) });
      const flat = kept.agents.flat(), slotted = kept.agents.flatMap((own, slot) => own.map(() => slot));
      if (flat.length) send("agents", { ...(flat.every(Boolean) ? { starts: flat } : { count: flat.length }), slots: slotted });
      if (kept.specs[0] && kept.specs[0].kind === "reward") $("formula").value = kept.specs[0].reward;
      kept.specs.forEach((spec, slot) => { if (spec) ask(spec, slot === 0 && state.paint.length && spec.kind === "reward" ? { paint: state.paint } : {}, slot); });
      return true;
    } catch { return false; /* no state, or not ours */ }
  }
  window.addEventListener("pagehide", () => state.scene && remember(true));

  // ---- the scene --------------------------------------------------------------------------------------------------

  function begin(scene) {
    state.scene = scene;
    $("about").textContent = `${scene.method} in ${scene.task} · ${scene.run}${scene.rival ? ` and ${scene.rival.run}` : ""}`;
    $("compare").checked = Boolean(scene.rival);
    $("compare-text").textContent = scene.rival ? `Compare with ${scene.rival.run}: both are asked the same` : "Compare: a second agent keeps this prompt";
    const fill = (id, values) => { $(id).replaceChildren(...values.map((value) => new Option(value, value))); };
    fill("plan", scene.plans); fill("rule", scene.rules);
    $("reward-name").replaceChildren(new Option("choose …", ""), ...scene.rewards.map((name) => new Option(name, name)));
    $("goal-name").replaceChildren(new Option("choose …", ""), ...scene.goals.map((name) => new Option(name, name)));
    $("goal-names").hidden = !scene.goals.length;
    $("reward-names").hidden = !scene.rewards.length;
    $("brushes").hidden = !has("paint");
    $("columns").replaceChildren(...[...scene.columns, ...scene.functions.map((name) => `${name}(`)].map((name) => new Option(name, name)));
    $("formula").placeholder = `${scene.columns[0]} - before(${scene.columns[0]})`;
    for (const tab of document.querySelectorAll("#tabs button")) tab.hidden = !has(tab.dataset.mode);
    $("agents").max = scene.agents; $("speed").value = scene.speed;
    if (scene.skill) sliders(scene.skill);
    strip(scene);
    state.background = null;
    if (scene.map.picture) { state.background = new Image(); state.background.onload = redraw; state.background.src = scene.map.picture; }
    resize();
    show(ACTIONS.find(has) || "goal");
    if (!recall() && scene.rival) populate(1);
    if (scene.alone) ask(scene.alone);
  }

  function strip(scene) {
    const shown = !has("place") || scene.states.some((one) => one.picture);
    $("strip").hidden = !shown;
    $("strip").replaceChildren(...(shown ? scene.states : []).map((one) => {
      const button = document.createElement("button");
      button.setAttribute("aria-label", `State ${one.row} of the data as goal`);
      if (one.picture) { const image = new Image(); image.src = one.picture; image.alt = ""; button.append(image); }
      else button.textContent = `row ${one.row}`;
      button.dataset.row = one.row;
      button.onclick = () => askRow(one.row);
      return button;
    }));
  }

  function sliders({ axes }) {
    state.weights = axes.map((_, n) => (n === 0 ? 1 : 0));
    $("sliders").replaceChildren(...axes.slice(2).map((_, n) => {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "range", min: -1, max: 1, step: 0.05, value: 0 });
      input.oninput = () => { state.weights[n + 2] = Number(input.value); askSkill(); };
      label.append(`axis ${n + 3}`, input);
      return label;
    }));
    turn(0, false);
  }

  function turn(angle, asks = true) {
    const degrees = ((Math.round((angle * 180) / Math.PI) % 360) + 360) % 360;
    [state.weights[0], state.weights[1]] = [Math.cos(angle), Math.sin(angle)];
    $("dial").setAttribute("aria-valuenow", degrees);
    const context = $("dial").getContext("2d"), c = 110;
    context.clearRect(0, 0, 220, 220);
    context.lineWidth = 10; context.strokeStyle = draw.palette.line;
    context.beginPath(); context.arc(c, c, 95, 0, 7); context.stroke();
    context.lineWidth = 4; context.strokeStyle = context.fillStyle = draw.palette.accent;
    const [x, y] = [c + 95 * Math.cos(angle), c - 95 * Math.sin(angle)];
    context.beginPath(); context.moveTo(c, c); context.lineTo(x, y); context.stroke();
    context.beginPath(); context.arc(x, y, 12, 0, 7); context.fill();
    state.angle = angle;
    if (asks) askSkill();
  }

  // ---- modes ------------------------------------------------------------------------------------------------------

  const HINTS = {
    goal: () => (has("place") ? "Click or drag on the map to set the goal; drag the agent to put it elsewhere." : "Choose a state of the data as goal, on the strip or on the map of the data."),
    reward: () => (has("paint") ? "Paint on the map where to be (+) and where not (−), choose a reward, or write a formula." : "Choose a reward, or write a formula."),
    skill: () => "Turn the dial, or drag the agent to see the skill from elsewhere.",
    follow: () => "Draw a path on the map.",
    prefer: () => "Choose the better of two ways.",
  };

  function show(mode) {
    state.mode = mode;
    for (const tab of document.querySelectorAll("#tabs button")) {
      const own = tab.dataset.mode === mode;
      tab.setAttribute("aria-selected", own);
      tab.tabIndex = own ? 0 : -1;
      $(tab.dataset.mode).hidden = !own;
    }
    $("hint").textContent = HINTS[mode]();
    if (mode === "prefer" && !state.pair) otherPair();
  }

  for (const tab of document.querySelectorAll("#tabs button")) {
    tab.onclick = () => { show(tab.dataset.mode); remember(); };
    tab.onkeydown = (event) => {
      const turnBy = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!turnBy) return;
      const tabs = [...document.querySelectorAll("#tabs button")].filter((one) => !one.hidden);
      const next = tabs[(tabs.indexOf(tab) + turnBy + tabs.length) % tabs.length];
      next.focus(); next.click();
    };
  }

  function otherPair() { send("segments", { id: ++state.asked, seed: Math.floor(Math.random() * 1e6) }); }

  function choose(message) {
    state.pair = message;
    message.pair.forEach((places, n) => small($(`segment-${n}`), null, places));
  }

  [0, 1].forEach((n) => {
    $(`better-${n}`).onclick = () => {
      if (!state.pair) return;
      state.pairs.push([state.pair.states[n], state.pair.states[1 - n]]);
      answered();
      ask({ kind: "prefer", pairs: state.pairs });
      otherPair();
    };
  });
  const answered = () => { $("answers").textContent = `${state.pairs.length} answer${state.pairs.length === 1 ? "" : "s"}`; };
  $("other-pair").onclick = otherPair;
  $("forget-pairs").onclick = () => { state.pairs = []; answered(); otherPair(); };

  $("plan").onchange = () => state.specs[0] && state.specs[0].kind === "goal" && ask(withPlan(state.specs[0]));
  $("rule").onchange = () => state.specs[0] && state.specs[0].kind === "reward" && askReward(state.specs[0].reward, state.paint.length ? { paint: state.paint } : {});
  $("goal-name").onchange = () => $("goal-name").value && ask(withPlan({ kind: "goal", goal: $("goal-name").value }));
  const named = (text) => { state.paint = []; askReward(text); };
  $("reward-name").onchange = () => { if ($("reward-name").value) { $("formula").value = ""; named($("reward-name").value); } };
  $("formula-form").onsubmit = (event) => { event.preventDefault(); if ($("formula").value.trim()) { $("reward-name").value = ""; named($("formula").value.trim()); } };
  $("plus").onclick = $("minus").onclick = (event) => {
    state.sign = event.currentTarget.id === "plus" ? 1 : -1;
    $("plus").setAttribute("aria-pressed", state.sign === 1);
    $("minus").setAttribute("aria-pressed", state.sign === -1);
  };
  $("clear").onclick = () => { state.paint = []; $("formula").value = ""; say("the painting is empty"); remember(); };
  $("forget-path").onclick = () => { state.path = []; remember(); };

  // Completion of the word under the cursor: the list offers whole formulas with it replaced.
  $("formula").addEventListener("input", () => {
    const text = $("formula").value, word = /[A-Za-z_]\w*$/.exec(text);
    if (!state.scene) return;
    const known = [...state.scene.columns, ...state.scene.functions.map((name) => `${name}(`)];
    const begun = word ? text.slice(0, word.index) : text;
    const fitting = word ? known.filter((name) => name.startsWith(word[0])) : known;
    $("columns").replaceChildren(...fitting.slice(0, 12).map((name) => new Option(name, begun + name)));
  });

  // ---- the simulation ---------------------------------------------------------------------------------------------

  const control = (fields) => send("control", fields);
  $("run").onclick = () => control({ run: !(state.frame && state.frame.run) });
  $("step").onclick = () => control({ run: false, step: 1 });
  $("restart").onclick = () => { control({ restart: true }); state.trails = []; };
  $("speed").oninput = () => control({ speed: Number($("speed").value) });
  $("push").onclick = () => send("push", { seed: Math.floor(Math.random() * 1e6) });
  // New agents, as many in the second slot as in the first where two prompts or policies are compared; from these starts, or where the task begins.
  function populate(count, starts = null) {
    const both = $("compare").checked, own = Math.max(1, Math.min(count, Math.floor(state.scene.agents / (both ? 2 : 1))));
    const slots = [...Array(own).fill(0), ...Array(both ? own : 0).fill(1)];
    send("agents", { ...(starts ? { starts: slots.map((_, n) => starts[n % own]) } : { count: slots.length }), slots });
    $("agents").value = own;
    state.trails = [];
    remember();
  }
  $("agents").onchange = () => populate(Math.round(Number($("agents").value) || 1));
  $("compare").onchange = () => {
    if (!state.frame) return;
    const on = $("compare").checked, first = state.frame.agents.filter((agent) => agent.slot === 0);
    if (on && !state.specs[0] && !state.scene.rival) { $("compare").checked = false; return say("prompt the agent first, then keep that prompt for a second one", true); }
    if (!on) state.specs[1] = state.said[1] = null;
    populate(first.length, has("place") ? first.map((agent) => agent.state) : null);
    if (on && state.specs[0]) ask(state.specs[0], {}, 1);
    if (on && !state.scene.rival) say("the second agent keeps this prompt; ask the first one for something else");
  };

  function framed(frame) {
    state.frame = frame;
    frame.agents.forEach((agent, n) => {
      const trail = (state.trails[n] = state.trails[n] || []), last = trail[trail.length - 1];
      if (!agent.place) return;
      const far = last && Math.hypot(last[0] - agent.place[0], last[1] - agent.place[1]) > 8 * state.scene.map.radius;
      if (far) trail.length = 0;
      if (!last || last[0] !== agent.place[0] || last[1] !== agent.place[1]) trail.push(agent.place);
      if (trail.length > 240) trail.shift();
    });
    state.trails.length = state.shown.length = frame.agents.length;
    $("run").textContent = frame.run ? "Pause" : "Run";
    $("clock").textContent = `${frame.step} step${frame.step === 1 ? "" : "s"}`;
    if (document.activeElement !== $("agents")) $("agents").value = frame.agents.filter((agent) => agent.slot === 0).length;
    facts(frame);
    [0, 1].forEach((n) => {
      const picture = (frame.pictures || [])[n];
      $(`camera-${n}`).hidden = !picture;
      if (picture) $(`camera-${n}`).src = picture;
    });
    const filmed = Boolean(frame.pictures && frame.pictures[0]);
    if ($("frame").classList.toggle("filmed", filmed) !== state.filmed) { state.filmed = filmed; resize(); }
  }

  function facts(frame) {
    const way = frame.ways && frame.ways[0], own = frame.agents.filter((agent) => agent.slot === 0);
    const there = own.length > 0 && own.every((agent) => agent.reached);
    $("steps-to-go").textContent = there ? "0" : way && way.steps !== null ? Math.round(way.steps) : "–";
    $("support").textContent = !way ? "–" : way.support === null ? "near" : `${way.support}×`;
    const words = { yes: "yes", no: "no way in the data", unknown: "not in the data" };
    $("reachable").textContent = there ? "reached" : way ? words[way.reachable] : "–";
    const news = there ? "reached" : way && way.reachable === "no" ? "no way" : "";
    if (news === state.news || !state.said[0] || state.said[0].kind !== "goal") return;
    state.news = news;
    if (there) say(own.length > 1 ? "all agents have reached the goal" : "the goal is reached");
    else if (news) say("the data shows no way from here to this goal", true);
  }

  window.hilpPlay = { state, send, ask, askGoal, askPaint, dab, show };

  // ---- drawing ----------------------------------------------------------------------------------------------------

  const heatOf = (values, signed) => draw.heat(state.scene.field.places, values, state.scene.map.bounds, state.scene.map.radius, signed);

  function small(canvas, heated, places) {
    const context = canvas.getContext("2d"), at = draw.ground(canvas, state.scene.map, heated || null, null);
    if (!places) return;
    context.lineWidth = 3; context.strokeStyle = draw.palette.accent;
    draw.line(context, at, places); context.stroke();
    draw.disc(context, at, places[places.length - 1], state.scene.map.radius, draw.palette.accent);
  }

  function resize() {
    if (!state.scene) return;
    const [x0, y0, x1, y1] = state.scene.map.bounds, canvas = $("map"), wide = canvas.clientWidth;
    const high = state.filmed ? wide : Math.min(wide * ((y1 - y0) / (x1 - x0)), Math.max(260, innerHeight - 190));
    const dense = Math.min(2, devicePixelRatio || 1);
    canvas.style.height = `${high}px`;
    canvas.width = Math.round(wide * dense); canvas.height = Math.round(high * dense);
    redraw();
  }
  addEventListener("resize", resize);

  // The map is drawn when something has changed, and until agents that glide have arrived.
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let drawn = true;
  const redraw = () => { if (drawn) { drawn = false; requestAnimationFrame(paintMap); } };
  function paintMap() {
    const { scene, frame } = state;
    drawn = true;
    if (!scene || !frame) return;
    const canvas = $("map"), context = canvas.getContext("2d"), radius = scene.map.radius, { palette } = draw;
    const at = draw.ground(canvas, scene.map, state.heated, state.background && state.background.complete ? state.background : null);
    state.view = at;
    for (const [x, y, r, sign] of state.mode === "reward" ? state.paint : []) {
      context.globalAlpha = 0.45; draw.disc(context, at, [x, y], r, sign > 0 ? palette.plus : palette.minus); context.globalAlpha = 1;
    }
    const tones = [palette.accent, palette.second];
    (frame.ways || []).forEach((way, slot) => {
      if (!way || way.path.length < 2) return;
      context.setLineDash([6, 7]); context.lineWidth = 2.5; context.strokeStyle = slot ? palette.second : palette.ink;
      draw.line(context, at, way.path); context.stroke(); context.setLineDash([]);
      way.path.slice(1, -1).forEach((place) => draw.disc(context, at, place, radius / 4, slot ? palette.second : palette.ink));
    });
    if (state.path.length > 1 && (state.mode === "follow")) {
      context.lineWidth = 4; context.strokeStyle = palette.plus; draw.line(context, at, state.path); context.stroke();
    }
    frame.agents.forEach((agent, n) => {
      if (!agent.place) return;
      const tone = tones[agent.slot];
      context.globalAlpha = 0.55; context.lineWidth = 3; context.strokeStyle = tone;
      draw.line(context, at, state.trails[n] || []); context.stroke(); context.globalAlpha = 1;
      const shown = state.shown[n], jump = !shown || still.matches || Math.hypot(shown[0] - agent.place[0], shown[1] - agent.place[1]) > 6 * radius;
      const near = jump || Math.hypot(shown[0] - agent.place[0], shown[1] - agent.place[1]) < 0.01 * radius;
      state.shown[n] = near ? agent.place : [0, 1].map((k) => shown[k] + 0.4 * (agent.place[k] - shown[k]));
      if (!near) redraw();
      context.lineWidth = 3;
      draw.disc(context, at, state.shown[n], radius, tone, palette.card);
    });
    state.said.forEach((said, slot) => said && said.goal && draw.star(context, at, said.goal, radius * 1.1, slot ? palette.second : palette.minus));
    if (state.cursor && document.activeElement === canvas) {
      context.lineWidth = 2; draw.disc(context, at, state.cursor, radius * 0.7, null, palette.ink);
    }
  }
  for (const type of ["input", "click", "keydown", "pointermove", "pointerup", "focusin", "focusout"]) addEventListener(type, redraw);

  // ---- hands ------------------------------------------------------------------------------------------------------

  const map = $("map");
  const placeOf = (event) => {
    const box = map.getBoundingClientRect();
    return state.view.from([((event.clientX - box.left) * map.width) / box.width, ((event.clientY - box.top) * map.height) / box.height]);
  };
  let due = 0;
  const seldom = (act) => { const now = performance.now(); if (now >= due) { due = now + 60; act(); } };

  map.onpointerdown = (event) => {
    if (!state.view || !state.frame || event.button > 0) return;
    map.setPointerCapture(event.pointerId);
    const place = placeOf(event);
    const near = state.frame.agents.findIndex((agent) => agent.place && Math.hypot(agent.place[0] - place[0], agent.place[1] - place[1]) < 1.4 * state.scene.map.radius);
    state.drag = near >= 0 && has("place") && state.mode !== "follow" ? { agent: near } : { mode: state.mode };
    if (state.drag.mode === "follow") state.path = [];
    dragged(place, true);
  };
  map.onpointermove = (event) => state.drag && dragged(placeOf(event), false);
  map.onpointerup = map.onpointercancel = (event) => {
    if (!state.drag) return;
    const { mode, agent } = state.drag;
    if (event.type === "pointerup") {
      if (agent !== undefined) send("move", { agent, to: placeOf(event) });
      else if (mode === "goal") askGoal(placeOf(event));
      else if (mode === "reward" && has("paint")) askPaint();
      else if (mode === "follow") askPath();
    }
    state.drag = null;
    remember();
  };

  function dragged(place, first) {
    const { mode, agent } = state.drag;
    if (agent !== undefined) { if (!first) seldom(() => send("move", { agent, to: place })); }
    else if (mode === "goal") { if (!first) seldom(() => askGoal(place)); }
    else if (mode === "reward" && has("paint")) dab(place);
    else if (mode === "follow") {
      const last = state.path[state.path.length - 1];
      if (!last || Math.hypot(last[0] - place[0], last[1] - place[1]) > 0.4 * state.scene.map.radius) state.path.push(place.map((value) => round(value)));
    }
  }

  function askPath() {
    if (state.path.length < 2) return say("draw a longer path", true);
    ask({ kind: "follow", trajectory: state.path });
  }

  function middle() { const [x0, y0, x1, y1] = state.scene.map.bounds; return [(x0 + x1) / 2, (y0 + y1) / 2]; }

  map.onkeydown = (event) => {
    if (!state.scene) return;
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key], unit = 2 * state.scene.map.radius;
    if (by) {
      const [x0, y0, x1, y1] = state.scene.map.bounds, [x, y] = state.cursor || middle();
      state.cursor = [Math.min(x1, Math.max(x0, x + unit * by[0])), Math.min(y1, Math.max(y0, y + unit * by[1]))];
    } else if (event.key === "Enter") {
      const place = state.cursor || middle();
      if (event.shiftKey && has("place")) send("move", { agent: 0, to: place });
      else if (state.mode === "goal") askGoal(place);
      else if (state.mode === "reward" && has("paint")) { dab(place); askPaint(); }
      else if (state.mode === "follow") { state.path.push(place.map((value) => round(value))); if (state.path.length > 1) askPath(); }
    } else if (event.key === " ") $("run").click();
    else if (event.key === ".") $("step").click();
    else if (event.key === "r") $("restart").click();
    else if (event.key === "p") $("push").click();
    else return;
    event.preventDefault();
  };

  const dial = $("dial");
  const angleOf = (event) => { const box = dial.getBoundingClientRect(); return Math.atan2(box.top + box.height / 2 - event.clientY, event.clientX - box.left - box.width / 2); };
  dial.onpointerdown = (event) => { dial.setPointerCapture(event.pointerId); state.turning = true; turn(angleOf(event)); };
  dial.onpointermove = (event) => state.turning && seldom(() => turn(angleOf(event)));
  dial.onpointerup = dial.onpointercancel = (event) => { if (state.turning && event.type === "pointerup") turn(angleOf(event)); state.turning = false; };
  dial.onkeydown = (event) => {
    const by = { ArrowLeft: 10, ArrowUp: 10, ArrowRight: -10, ArrowDown: -10 }[event.key];
    if (by) { event.preventDefault(); turn((state.angle || 0) + (by * Math.PI) / 180); }
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw.refresh(); redraw(); state.said[0] && prompted(state.said[0]); });
  send("hello", { version: 1 });
})();
