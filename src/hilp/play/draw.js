// Drawing: the map, heat, agents and small pictures, onto canvases. Knows no messages.
"use strict";
window.hilpDraw = (() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  let palette = {};
  const names = ["wall", "floor", "accent", "second", "plus", "minus", "near", "far", "low", "high", "ink", "soft", "line", "card"];
  const refresh = () => { for (const name of names) palette[name] = colour(name); };
  refresh();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);

  const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const mix = (a, b, share) => rgb(a).map((value, at) => value + (rgb(b)[at] - value) * share);

  // World to pixels of a canvas, y upwards, as large as fits.
  function view(canvas, bounds) {
    const [x0, y0, x1, y1] = bounds, ratio = canvas.height / canvas.width;
    const scale = Math.min(canvas.width / (x1 - x0), canvas.height / (y1 - y0));
    const left = (canvas.width - scale * (x1 - x0)) / 2, top = (canvas.height - scale * (y1 - y0)) / 2;
    return {
      scale, ratio,
      to: ([x, y]) => [left + (x - x0) * scale, top + (y1 - y) * scale],
      from: ([px, py]) => [x0 + (px - left) / scale, y1 - (py - top) / scale],
    };
  }

  // Values at scattered places as a small picture, the mean of each bin; bins without any take their neighbours' mean.
  function heat(places, values, bounds, side, signed) {
    const [x0, y0, x1, y1] = bounds;
    const wide = Math.max(1, Math.round((x1 - x0) / side)), high = Math.max(1, Math.round((y1 - y0) / side));
    const sum = new Float64Array(wide * high), count = new Float64Array(wide * high);
    const kept = [];
    values.forEach((value, n) => {
      const place = places[n];
      if (value === null || !place) return;
      const column = Math.floor(((place[0] - x0) / (x1 - x0)) * wide), row = Math.floor(((y1 - place[1]) / (y1 - y0)) * high);
      if (column < 0 || row < 0 || column >= wide || row >= high) return;
      sum[row * wide + column] += value; count[row * wide + column] += 1; kept.push(value);
    });
    if (!kept.length) return null;
    const mean = Array.from(sum, (value, n) => (count[n] ? value / count[n] : null));
    const spread = (known) => known.map((value, n) => {
      if (value !== null) return value;
      const row = Math.floor(n / wide), column = n % wide, around = [];
      for (const [down, right] of [[0, 1], [0, -1], [1, 0], [-1, 0]]) {
        const r = row + down, c = column + right;
        if (r >= 0 && c >= 0 && r < high && c < wide && known[r * wide + c] !== null) around.push(known[r * wide + c]);
      }
      return around.length ? around.reduce((a, b) => a + b) / around.length : null;
    });
    const filled = spread(spread(spread(mean)));
    kept.sort((a, b) => a - b);
    const low = kept[Math.floor(0.01 * (kept.length - 1))], top = kept[Math.ceil(0.99 * (kept.length - 1))];
    const most = Math.max(Math.abs(low), Math.abs(top)) || 1;
    const picture = document.createElement("canvas");
    picture.width = wide; picture.height = high;
    const context = picture.getContext("2d"), image = context.createImageData(wide, high);
    filled.forEach((value, n) => {
      if (value === null) return;
      const share = top > low ? Math.min(1, Math.max(0, (value - low) / (top - low))) : 0.5;
      const tone = Math.max(-1, Math.min(1, value / most)); // zero is the floor: what pays is one colour, what costs another
      const shade = signed
        ? mix(palette.floor, tone < 0 ? palette.low : palette.high, 0.9 * Math.abs(tone))
        : mix(palette.near, palette.far, Math.sqrt(share));
      image.data.set([...shade, 235], 4 * n);
    });
    context.putImageData(image, 0, 0);
    return picture;
  }

  function ground(canvas, map, heated, background) {
    const context = canvas.getContext("2d"), at = view(canvas, map.bounds);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = palette.floor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const [x0, y0, x1, y1] = map.bounds, [left, top] = at.to([x0, y1]), [right, bottom] = at.to([x1, y0]);
    context.imageSmoothingEnabled = true;
    if (background) context.drawImage(background, left, top, right - left, bottom - top);
    if (heated) context.drawImage(heated, left, top, right - left, bottom - top);
    context.fillStyle = palette.wall;
    for (const [x, y, width, height] of map.walls) {
      const [px, py] = at.to([x, y + height]);
      context.fillRect(px - 0.5, py - 0.5, width * at.scale + 1, height * at.scale + 1);
    }
    context.fillStyle = palette.second;
    for (const door of map.doors || []) line(context, at, door, true), context.fill();
    return at;
  }

  function line(context, at, places, closed) {
    context.beginPath();
    places.forEach((place, n) => context[n ? "lineTo" : "moveTo"](...at.to(place)));
    if (closed) context.closePath();
  }

  function disc(context, at, place, radius, fill, ring) {
    const [x, y] = at.to(place);
    context.beginPath();
    context.arc(x, y, radius * at.scale, 0, 2 * Math.PI);
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (ring) { context.strokeStyle = ring; context.stroke(); }
  }

  function star(context, at, place, radius, stroke) {
    const [x, y] = at.to(place), r = Math.max(7, radius * at.scale);
    context.strokeStyle = stroke; context.lineWidth = Math.max(2, r / 5);
    for (const size of [r, r / 2.4]) { context.beginPath(); context.arc(x, y, size, 0, 2 * Math.PI); context.stroke(); }
    context.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) { context.moveTo(x + dx * r, y + dy * r); context.lineTo(x + dx * r * 1.5, y + dy * r * 1.5); }
    context.stroke();
  }

  return { palette, refresh, view, heat, ground, line, disc, star };
})();
