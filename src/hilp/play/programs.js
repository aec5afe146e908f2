// Programs of plain steps over arrays, as hilp.export.programs writes them: the rules of a policy, whatever its method.
// A value is { shape, data }, rows first. Sums are taken in float64 and rounded once to float32.
"use strict";
window.hilpPrograms = (() => {
  const KINDS = {
    float32: Float32Array, float64: Float64Array, int32: Int32Array, uint32: Uint32Array, uint16: Uint16Array,
    uint8: Uint8Array, bool: Uint8Array,
  };
  const size = (shape) => shape.reduce((a, b) => a * b, 1);

  // { kind, shape, base64 } of the page as an array.
  function decode({ kind, shape, base64 }) {
    const text = atob(base64), bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
    return { shape, data: new KINDS[kind](bytes.buffer) };
  }

  // ---- steps --------------------------------------------------------------------------------------------------------

  const ROWS = 256; // of a block: what a step makes stays in cache
  const valueOf = (one) => (typeof one === "number" ? { shape: [], data: Float64Array.of(one) } : one);

  // How far to go in an array for a step along each axis of a shape that it is broadcast to.
  function strides(shape, wide) {
    const found = new Array(wide.length).fill(0), less = wide.length - shape.length;
    for (let axis = shape.length - 1, by = 1; axis >= 0; axis--) {
      if (shape[axis] !== 1) found[axis + less] = by;
      by *= shape[axis];
    }
    return found;
  }

  function broadcast(shapes) {
    const axes = Math.max(...shapes.map((shape) => shape.length)), wide = new Array(axes).fill(1);
    for (const shape of shapes) {
      shape.forEach((length, axis) => {
        const at = axis + axes - shape.length;
        if (length === 1 || wide[at] === length) return;
        if (wide[at] !== 1) throw new Error(`shapes do not fit: ${JSON.stringify(shapes)}`);
        wide[at] = length;
      });
    }
    return wide;
  }

  // What a step makes of each number, broadcast as numpy does. loop(out, to, count, a, at, by, b, at, by, ...) makes
  // `count` numbers of one row: a loop for each step, so that a browser compiles it well.
  function each(operands, kind, loop) {
    const given = operands.map(valueOf), shape = broadcast(given.map((one) => one.shape));
    const out = new kind(size(shape)), by = given.map((one) => strides(one.shape, shape));
    const inner = shape.length ? shape[shape.length - 1] : 1, rows = inner ? out.length / inner : 0;
    const [a, b, c] = given.map((one) => one.data), [i, j, k] = by.map((one) => (one.length ? one[one.length - 1] : 0));
    const place = new Array(shape.length).fill(0), at = given.map(() => 0);
    for (let row = 0; row < rows; row++) {
      loop(out, row * inner, inner, a, at[0], i, b, at[1], j, c, at[2], k);
      for (let axis = shape.length - 2; axis >= 0; axis--) { // the next row, in all axes but the last
        place[axis] += 1;
        for (let n = 0; n < at.length; n++) at[n] += by[n][axis];
        if (place[axis] < shape[axis]) break;
        for (let n = 0; n < at.length; n++) at[n] -= by[n][axis] * shape[axis];
        place[axis] = 0;
      }
    }
    return { shape, data: out };
  }

  const numeric = (operands) => (operands.some((one) => one.data instanceof Float64Array) ? Float64Array : Float32Array);
  const plain = (loop) => (...operands) => each(operands, numeric(operands), loop);
  const truth = (apply) => (...operands) => each(operands, Uint8Array, (o, to, m, a, x, i, b, y, j) => {
    for (let n = 0; n < m; n++) o[to + n] = apply(a[x + n * i], b === undefined ? 0 : b[y + n * j]);
  });
  const unary = (apply) => plain((o, to, m, a, x, i) => { for (let n = 0; n < m; n++) o[to + n] = apply(a[x + n * i]); });
  const chosen = (o, to, m, a, x, i, b, y, j, c, z, k) => { for (let n = 0; n < m; n++) o[to + n] = a[x + n * i] ? b[y + n * j] : c[z + n * k]; };
  const copied = (o, to, m, a, x, i) => { for (let n = 0; n < m; n++) o[to + n] = a[x + n * i]; };

  function ofRows({ shape: [rows, wide], data }, first, apply) {
    const out = new data.constructor(rows);
    for (let row = 0, at = 0; row < rows; row++) {
      let value = first;
      for (const end = at + wide; at < end; at++) value = apply(value, data[at]);
      out[row] = value;
    }
    return { shape: [rows, 1], data: out };
  }

  // Over the numbers of rows, which are rows of one then; or over these axes of a value with more.
  function over(x, how, first, apply) {
    if (!how && x.shape.length === 2) return ofRows(x, first, apply);
    const axes = how && how.axes ? how.axes : [1], kept = x.shape.map((length, axis) => (axes.includes(axis) ? 1 : length));
    const out = new Float64Array(size(kept)).fill(first), by = strides(kept, x.shape), place = x.shape.map(() => 0);
    const last = x.shape.length - 1;
    for (let n = 0, to = 0; n < x.data.length; n++) {
      out[to] = apply(out[to], x.data[n]);
      for (let axis = last; axis >= 0; axis--) {
        place[axis] += 1; to += by[axis];
        if (place[axis] < x.shape[axis]) break;
        to -= by[axis] * x.shape[axis]; place[axis] = 0;
      }
    }
    const shape = how && how.axes ? x.shape.filter((_, axis) => !axes.includes(axis)) : kept;
    return { shape, data: new x.data.constructor(out) };
  }

  function matmul(x, weights) {
    const [deep, wide] = weights.shape, rows = x.data.length / deep, w = weights.data;
    const out = new Float32Array(rows * wide), sum = new Float64Array(wide);
    for (let row = 0; row < rows; row++) {
      sum.fill(0);
      let k = 0, at = 0, from = row * deep;
      for (; k + 3 < deep; k += 4, from += 4, at += 4 * wide) { // four at a time: sums are read and written less often
        const a = x.data[from], b = x.data[from + 1], c = x.data[from + 2], d = x.data[from + 3];
        for (let j = 0; j < wide; j++) sum[j] += a * w[at + j] + b * w[at + wide + j] + c * w[at + 2 * wide + j] + d * w[at + 3 * wide + j];
      }
      for (; k < deep; k++, from++, at += wide) for (let j = 0; j < wide; j++) sum[j] += x.data[from] * w[at + j];
      out.set(sum, row * wide);
    }
    return { shape: [...x.shape.slice(0, -1), wide], data: out };
  }

  // Rows of other numbers of each row: `columns` are where they lie in it, -1 for a zero.
  function pick(x, columns) {
    const rows = x.shape[0], wide = x.shape[1], out = new x.data.constructor(rows * columns.length);
    for (let row = 0, to = 0; row < rows; row++) for (const column of columns) out[to++] = column < 0 ? 0 : x.data[row * wide + column];
    return { shape: [rows, columns.length], data: out };
  }

  function concat(...parts) {
    const rows = parts[0].shape[0], wide = parts.reduce((sum, one) => sum + one.shape[1], 0);
    const out = new (numeric(parts))(rows * wide);
    let first = 0;
    for (const { shape: [, own], data } of parts) {
      for (let row = 0; row < rows; row++) for (let n = 0; n < own; n++) out[row * wide + first + n] = data[row * own + n];
      first += own;
    }
    return { shape: [rows, wide], data: out };
  }

  const range = (first, last) => Array.from({ length: last - first }, (_, n) => first + n);
  const laid = (x, shape) => ({ shape: [x.shape[0], ...shape], data: x.data });

  const STEPS = {
    add: plain((o, to, m, a, x, i, b, y, j) => { for (let n = 0; n < m; n++) o[to + n] = a[x + n * i] + b[y + n * j]; }),
    sub: plain((o, to, m, a, x, i, b, y, j) => { for (let n = 0; n < m; n++) o[to + n] = a[x + n * i] - b[y + n * j]; }),
    mul: plain((o, to, m, a, x, i, b, y, j) => { for (let n = 0; n < m; n++) o[to + n] = a[x + n * i] * b[y + n * j]; }),
    div: plain((o, to, m, a, x, i, b, y, j) => { for (let n = 0; n < m; n++) o[to + n] = a[x + n * i] / b[y + n * j]; }),
    max: plain((o, to, m, a, x, i, b, y, j) => { for (let n = 0; n < m; n++) o[to + n] = Math.max(a[x + n * i], b[y + n * j]); }),
    min: plain((o, to, m, a, x, i, b, y, j) => { for (let n = 0; n < m; n++) o[to + n] = Math.min(a[x + n * i], b[y + n * j]); }),
    tanh: plain((o, to, m, a, x, i) => { for (let n = 0; n < m; n++) o[to + n] = Math.tanh(a[x + n * i]); }),
    exp: unary(Math.exp), log: unary(Math.log), sqrt: unary(Math.sqrt), abs: unary(Math.abs), sin: unary(Math.sin),
    gt: truth((a, b) => a > b), ge: truth((a, b) => a >= b), lt: truth((a, b) => a < b), le: truth((a, b) => a <= b),
    eq: truth((a, b) => a === b), and: truth((a, b) => a && b), or: truth((a, b) => a || b), not: truth((a) => !a),
    where: (which, a, b) => each([which, a, b], numeric([a, b]), chosen),
    sum: (x, how) => over(x, how, 0, (a, b) => a + b), largest: (x, how) => over(x, how, -Infinity, Math.max),
    any: (x, how) => over(x, how, 0, (a, b) => (a || b ? 1 : 0)),
    matmul, concat, take: (x, { columns }) => pick(x, columns),
    slice: (x, { first, last }) => pick(x, range(first, last)),
    pad: (x, { before, behind }) => pick(x, [...Array(before).fill(-1), ...range(0, x.shape[1]), ...Array(behind).fill(-1)]),
    cast: (x, { to }) => ({ shape: x.shape, data: new KINDS[to](x.data) }),
    flatten: (x) => laid(x, [size(x.shape.slice(1))]), reshape: (x, { shape }) => laid(x, shape),
    expand: (x, { shape }) => each([x, { shape: [x.shape[0], ...shape], data: new Uint8Array(x.shape[0] * size(shape)) }], x.data.constructor, copied),
  };

  // ---- programs -----------------------------------------------------------------------------------------------------

  // function(values...) -> value. Operands are numbers of values, names of arrays, or [number].
  function program({ inputs, steps, output }, arrays) {
    const operand = (one, values) => (typeof one === "number" ? values[one] : Array.isArray(one) ? one[0] : arrays[one]);
    const ready = steps.map(([name, ...rest]) => {
      if (!STEPS[name]) throw new Error(`this page has no step '${name}'`);
      const last = rest[rest.length - 1], how = last !== null && typeof last === "object" && !Array.isArray(last) ? rest.pop() : undefined;
      return { apply: STEPS[name], given: rest, how };
    });
    function block(given) {
      const values = [...given];
      for (const { apply, given: own, how } of ready) {
        const found = own.map((one) => operand(one, values));
        values.push(how === undefined ? apply(...found) : apply(...found, how));
      }
      return operand(output, values);
    }
    return (...given) => {
      if (given.length !== inputs.length) throw new Error(`a rule takes ${inputs.length} inputs, not ${given.length}`);
      const rows = given[0].shape[0];
      if (rows <= ROWS) return block(given);
      const found = [];
      for (let first = 0; first < rows; first += ROWS) found.push(block(given.map((one) => rowsOf(one, first, Math.min(rows, first + ROWS)))));
      const out = new found[0].data.constructor(found.reduce((sum, one) => sum + one.data.length, 0));
      found.reduce((at, one) => { out.set(one.data, at); return at + one.data.length; }, 0);
      return { shape: [rows, ...found[0].shape.slice(1)], data: out };
    };
  }

  function rowsOf({ shape, data }, first, last) {
    const wide = size(shape.slice(1));
    return { shape: [last - first, ...shape.slice(1)], data: data.subarray(first * wide, last * wide) };
  }

  return { decode, program, STEPS };
})();
