// Rewards as formulas, the language of hilp.prompts.formulas: `x - before(x)` in, a function of a transition out.
// Text is read token by token into functions of this file; nothing of it is ever run as code.
"use strict";
window.hilpFormulas = (() => {
  const LONGEST = 2000, DEEPEST = 100;
  const TOKEN = /\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|<=|>=|==|!=|[-+*/%<>()[\],:])|(.))/gy;
  const WORDS = ["if", "else", "and", "or", "not"];

  // Number by number; a number counts as a vector of one, and the other way round.
  function lift(apply, values) {
    const wide = Math.max(...values.map((value) => (Array.isArray(value) ? value.length : 1)));
    if (values.some((value) => Array.isArray(value) && value.length !== 1 && value.length !== wide)) throw new Error("sizes that do not fit together");
    if (!values.some(Array.isArray)) return apply(...values);
    const at = (value, n) => (Array.isArray(value) ? value[value.length === 1 ? 0 : n] : value);
    return Array.from({ length: wide }, (_, n) => apply(...values.map((value) => at(value, n))));
  }
  const vector = (value) => (Array.isArray(value) ? value : [value]);
  const total = (value) => vector(value).reduce((a, b) => a + b, 0);
  const extreme = (pick) => (...values) => (values.length === 1 ? vector(values[0]).reduce((a, b) => pick(a, b)) : lift((...own) => own.reduce((a, b) => pick(a, b)), values));
  const each = (apply) => (...values) => lift(apply, values);
  const MANY = LONGEST;
  const FUNCTIONS = { // and the fewest and the most arguments
    norm: [(x) => Math.sqrt(vector(x).reduce((sum, value) => sum + value * value, 0)), 1, 1],
    sum: [total, 1, 1], mean: [(x) => total(x) / vector(x).length, 1, 1],
    min: [extreme(Math.min), 1, MANY], max: [extreme(Math.max), 1, MANY],
    dot: [(x, y) => {
      if (vector(x).length !== vector(y).length) throw new Error("sizes that do not fit together");
      return vector(x).reduce((sum, value, n) => sum + value * vector(y)[n], 0);
    }, 2, 2],
    clip: [each((x, low, high) => Math.min(Math.max(x, low), high)), 3, 3],
  };
  for (const name of ["abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "sign"]) FUNCTIONS[name] = [each(Math[name]), 1, 1];
  const SUMS = { "+": (a, b) => a + b, "-": (a, b) => a - b };
  const PRODUCTS = { "*": (a, b) => a * b, "/": (a, b) => a / b, "%": (a, b) => (b === 0 ? NaN : a - b * Math.floor(a / b)) };
  const COMPARED = {
    "<": (a, b) => Number(a < b), "<=": (a, b) => Number(a <= b), ">": (a, b) => Number(a > b), ">=": (a, b) => Number(a >= b),
    "==": (a, b) => Number(a === b), "!=": (a, b) => Number(a !== b),
  };

  // columns: { name: [first, count] } of an observation. A transition is { s, a, s2 }, arrays of numbers.
  function read(given, columns) {
    const text = given.trim().split(/\s+/).join(" ");
    const wrong = (problem) => { throw new Error(`reward formula '${text.slice(0, 117)}': ${problem}`); };
    if (!text) wrong("it is empty: write one such as 'x - before(x)'");
    if (text.length > LONGEST) wrong(`it has ${text.length} characters, at most ${LONGEST} are allowed`);
    const tokens = [];
    for (const [, number, name, sign, other] of text.matchAll(TOKEN)) {
      if (other && other.trim()) wrong(`'${other}' is not allowed`);
      if (number) tokens.push({ number: Number(number), text: number, whole: /^\d+$/.test(number) });
      else if (name || sign) tokens.push({ name: WORDS.includes(name) ? undefined : name, text: name || sign });
    }
    let at = 0, depth = 0, before = false;
    const peek = () => (at < tokens.length ? tokens[at].text : null);
    const take = (...wanted) => (at < tokens.length && tokens[at].number === undefined && !tokens[at].name && wanted.includes(tokens[at].text) ? tokens[at++].text : null);
    const need = (wanted) => take(wanted) || wrong(peek() === null ? `it ends where '${wanted}' is missing` : `'${wanted}' is missing before '${peek()}'`);
    const applied = (apply, pieces) => (t) => lift(apply, pieces.map((piece) => piece(t)));

    function chain(next, known) {
      let left = next();
      for (let sign = take(...Object.keys(known)); sign; sign = take(...Object.keys(known))) left = applied(known[sign], [left, next()]);
      return left;
    }
    function whole() {
      depth += 1;
      if (depth > DEEPEST) wrong(`it is nested deeper than ${DEEPEST} levels`);
      const value = either();
      if (!take("if")) { depth -= 1; return value; }
      const test = either();
      need("else");
      const other = whole();
      depth -= 1;
      return applied((c, x, y) => (c ? x : y), [test, value, other]);
    }
    const either = () => chain(both, { or: (a, b) => Number(Boolean(a) || Boolean(b)) });
    const both = () => chain(no, { and: (a, b) => Number(Boolean(a) && Boolean(b)) });
    function no() {
      let times = 0;
      while (take("not")) times += 1;
      const piece = compared();
      return times ? applied((a) => Number(times % 2 ? !a : Boolean(a)), [piece]) : piece;
    }
    function compared() {
      const pieces = [chain(product, SUMS)], tests = [];
      for (let sign = take(...Object.keys(COMPARED)); sign; sign = take(...Object.keys(COMPARED))) { tests.push(COMPARED[sign]); pieces.push(chain(product, SUMS)); }
      return tests.length ? applied((...values) => tests.reduce((all, test, n) => all * test(values[n], values[n + 1]), 1), pieces) : pieces[0];
    }
    const product = () => chain(signed, PRODUCTS);
    function signed() {
      let sign = 1, any = false;
      for (let one = take("-", "+"); one; one = take("-", "+")) { any = true; sign *= one === "-" ? -1 : 1; }
      const piece = power();
      return any ? applied((a) => sign * a, [piece]) : piece;
    }
    function power() {
      const piece = indexed();
      return take("**") ? applied((a, b) => a ** b, [piece, signed()]) : piece;
    }
    function indexed() {
      let piece = atom();
      while (take("[")) piece = part(piece);
      return piece;
    }
    function number() {
      const minus = take("-"), token = tokens[at];
      if (!token || !token.whole) wrong("an index is a whole number or a slice of them, as in observation[0] or observation[:1]");
      at += 1;
      return minus ? -token.number : token.number;
    }
    function part(piece) {
      const bound = () => (["]", ":"].includes(peek()) ? null : number()), first = bound(), slice = take(":");
      const last = slice ? bound() : null, step = slice && take(":") ? bound() : null;
      need("]");
      if (step !== null && step < 1) wrong("the step of a slice is a whole number above 0");
      if (!slice && first === null) wrong("an index is a whole number or a slice of them");
      return (t) => {
        const values = vector(piece(t)), from = (n, usual) => (n === null ? usual : n < 0 ? n + values.length : n);
        const [start, end] = slice ? [from(first, 0), from(last, values.length)] : [from(first, 0), from(first, 0) + 1];
        if (start < 0 || end > values.length || start >= end) throw new Error(`there are ${values.length} numbers, from 0 to ${values.length - 1}`);
        const kept = values.slice(start, end).filter((_, n) => n % (step || 1) === 0);
        return slice ? kept : kept[0];
      };
    }
    function atom() {
      const token = tokens[at];
      if (!token) return wrong("it ends too early");
      if (token.number !== undefined) {
        if (!Number.isFinite(token.number)) wrong("this number is too large");
        at += 1;
        return () => token.number;
      }
      if (take("(")) { const inner = whole(); need(")"); return inner; }
      if (!token.name) return wrong(`'${token.text}' cannot stand here`);
      at += 1;
      return take("(") ? call(token.name) : named(token.name);
    }
    function named(name) {
      const where = before ? "s" : "s2";
      if (name === "observation") return (t) => Array.from(t[where]);
      if (name === "action") return before ? wrong("the action lies between s and s': take it out of before()") : (t) => Array.from(t.a);
      if (Object.hasOwn(columns, name)) {
        const [first, count] = columns[name];
        return count === 1 ? (t) => t[where][first] : (t) => Array.from(t[where].slice(first, first + count));
      }
      if (Object.hasOwn(FUNCTIONS, name) || name === "before") wrong(`'${name}' is a function: call it, as in ${name}(x)`);
      return wrong(`unknown name '${name}': known are ${[...Object.keys(columns), "observation", "action"].join(", ")}`);
    }
    function call(name) {
      if (name !== "before" && !Object.hasOwn(FUNCTIONS, name)) wrong(`unknown function '${name}': known are ${[...Object.keys(FUNCTIONS), "before"].join(", ")}`);
      if (name === "before" && before) wrong("before() inside of before(): only s and s' are known");
      const outside = before, given = [];
      before = before || name === "before";
      while (peek() !== ")") { given.push(whole()); if (!take(",")) break; }
      need(")");
      before = outside;
      const [apply, fewest, most] = FUNCTIONS[name] || [null, 1, 1];
      if (given.length < fewest || given.length > most) wrong(`${name}() takes ${most > fewest ? "at least one argument" : `${fewest} argument${fewest > 1 ? "s" : ""}`}, not ${given.length}`);
      return apply ? (t) => apply(...given.map((piece) => piece(t))) : given[0];
    }

    const piece = whole();
    if (at < tokens.length) wrong(`'${peek()}' cannot stand here`);
    return (t) => {
      try {
        const value = vector(piece(t));
        if (value.length !== 1) throw new Error(`it gives ${value.length} numbers a transition, not one: use norm, sum or an index`);
        return Number(value[0]);
      } catch (error) { return wrong(error.message); }
    };
  }

  return { read };
})();
