// Taking it home: what is on the screen as Python, as a shell command, as a file, and as a film. Knows no messages.
"use strict";
window.hilpHome = (() => {
  const FRAMES = 150, PAUSE = 80, WIDE = 480; // of a film: most frames, milliseconds between two, pixels

  const python = (value) => {
    if (value === null) return "None";
    if (typeof value === "boolean") return value ? "True" : "False";
    if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
    if (typeof value === "object") {
      const fields = Object.entries(value).filter(([name]) => name !== "kind").map(([name, part]) => `${name}=${python(part)}`);
      return `hilp.${value.kind[0].toUpperCase()}${value.kind.slice(1)}(${fields.join(", ")})`;
    }
    return JSON.stringify(value);
  };

  // asked: for each prompt on the screen its run, task (or null), spec, and the states of its agents (null: where the task begins).
  function asPython(asked) {
    const lines = [
      "import numpy as np", "", "import hilp", "from hilp.evaluation.evaluate import make_prompt",
      "from hilp.evaluation.setup import acting_task, task_of", "from hilp.tasks.rendering import policy_observations",
    ];
    for (const { run, task, spec, starts } of asked) {
      lines.push("", `policy = hilp.FoundationPolicy.load(${python(run)})`,
        `task = acting_task(policy, task_of(policy${task ? `, ${python(task)}` : ""}))`,
        `prompt = make_prompt(policy, ${python(spec)}, task)`,
        `for n, start in enumerate(${python(starts)}):`,
        "    agent = task.episodes(np.random.default_rng([0, n]), 1, start=start)",
        "    prompt.reset()",
        "    for step in range(100):",
        "        agent.step(policy.act(policy_observations(agent), prompt))",
        "    print(agent.observations[0].tolist())");
    }
    return lines.join("\n") + "\n";
  }

  const quoted = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

  function flags(spec) {
    if (spec.kind === "goal") return `--goal=${quoted(Array.isArray(spec.goal) ? spec.goal.join(",") : spec.goal)} --plan=${spec.plan ?? "auto"}`;
    if (spec.kind === "reward") return `--reward=${quoted(spec.reward)}${spec.rule ? ` --rule=${spec.rule}` : ""}`;
    return spec.kind === "skill" && spec.z ? `--skill=${quoted(spec.z.join(","))}` : null;
  }

  // One command an agent; what the command line has no flags for goes through Python.
  function asShell(asked) {
    if (asked.some(({ spec }) => flags(spec) === null)) return `python - <<'END'\n${asPython(asked)}END\n`;
    return asked.flatMap(({ run, task, spec, starts }) => starts.map((start) =>
      `hilp prompt ${quoted(run)}${task ? ` --task=${quoted(task)}` : ""} ${flags(spec)}${start ? ` --start=${quoted(start.join(","))}` : ""}\n`)).join("");
  }

  function save(name, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // Films what `seen()` gives, canvases or images side by side, until it is stopped; then it is a GIF.
  function film(seen) {
    let timer = 0, frames = [], canvas = null;
    const size = (one) => [one.naturalWidth || one.width, one.naturalHeight || one.height];
    function take() {
      const shown = seen(), [wide, high] = size(shown[0]);
      if (!canvas) {
        const scale = Math.min(1, WIDE / (wide * shown.length));
        canvas = document.createElement("canvas");
        canvas.width = Math.round(wide * scale) * shown.length; canvas.height = Math.round(high * scale);
      }
      const context = canvas.getContext("2d", { willReadFrequently: true }), own = canvas.width / shown.length;
      shown.forEach((one, n) => context.drawImage(one, n * own, 0, own, canvas.height));
      frames.push(window.hilpGif.reduced(context.getImageData(0, 0, canvas.width, canvas.height).data));
      if (frames.length >= FRAMES) frames.shift();
    }
    return {
      isOn: () => timer > 0,
      start() { frames = []; canvas = null; take(); timer = setInterval(take, PAUSE); },
      stop() {
        clearInterval(timer); timer = 0;
        save("hilp.gif", "image/gif", window.hilpGif.encode(frames, canvas.width, canvas.height, PAUSE));
        return frames.length;
      },
    };
  }

  return { asPython, asShell, save, film };
})();
