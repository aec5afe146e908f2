// An encoder of GIFs. Frames share one palette of their most common colours; each holds only the box that changed.
"use strict";
window.hilpGif = (() => {
  const COLOURS = 256, CODES = 4096; // of a palette, and of LZW

  // Pixels RGBA with 5 bits a channel: small enough to keep many frames, and to count colours.
  function reduced(pixels) {
    const found = new Uint16Array(pixels.length / 4);
    for (let n = 0; n < found.length; n++) found[n] = ((pixels[4 * n] >> 3) << 10) | ((pixels[4 * n + 1] >> 3) << 5) | (pixels[4 * n + 2] >> 3);
    return found;
  }

  const channels = (colour) => [10, 5, 0].map((shift) => { const value = (colour >> shift) & 31; return (value << 3) | (value >> 2); });

  // The most common colours, and for each of all 2^15 the number of the nearest of these.
  function palette(frames) {
    const count = new Uint32Array(32768);
    for (const frame of frames) for (let n = 0; n < frame.length; n++) count[frame[n]] += 1;
    const used = [...count.keys()].filter((colour) => count[colour]).sort((a, b) => count[b] - count[a]);
    const chosen = used.slice(0, COLOURS).map(channels), nearest = new Uint8Array(32768);
    used.forEach((colour, rank) => {
      if (rank < COLOURS) { nearest[colour] = rank; return; }
      const [r, g, b] = channels(colour);
      let least = Infinity;
      chosen.forEach(([x, y, z], n) => {
        const far = (x - r) ** 2 + (y - g) ** 2 + (z - b) ** 2;
        if (far < least) { least = far; nearest[colour] = n; }
      });
    });
    return { chosen, nearest };
  }

  // The box [left, top, wide, high] in which two frames differ; a single pixel where they do not.
  function changed(before, now, wide, high) {
    let left = wide, right = -1, top = high, bottom = -1;
    for (let row = 0, n = 0; row < high; row++) {
      for (let column = 0; column < wide; column++, n++) {
        if (before && before[n] === now[n]) continue;
        if (column < left) left = column;
        if (column > right) right = column;
        if (row < top) top = row;
        bottom = row;
      }
    }
    return right < 0 ? [0, 0, 1, 1] : [left, top, right - left + 1, bottom - top + 1];
  }

  // LZW with codes that grow from 9 to 12 bits, in blocks of at most 255 bytes.
  function compress(indices, out) {
    const table = new Uint16Array(CODES << 8), clear = COLOURS, end = COLOURS + 1, bytes = [];
    let size = 9, next = end + 1, bits = 0, held = 0;
    const put = (code) => {
      held |= code << bits; bits += size;
      while (bits >= 8) { bytes.push(held & 255); held >>>= 8; bits -= 8; }
    };
    put(clear);
    let prefix = indices[0];
    for (let n = 1; n < indices.length; n++) {
      const key = (prefix << 8) | indices[n], known = table[key];
      if (known) { prefix = known; continue; }
      put(prefix);
      if (next < CODES) {
        if (next >= 1 << size) size += 1;
        table[key] = next++;
      } else { put(clear); table.fill(0); size = 9; next = end + 1; }
      prefix = indices[n];
    }
    put(prefix);
    if (next >= 1 << size && size < 12) size += 1; // a reader has one code more by now
    put(end);
    if (bits) bytes.push(held & 255);
    out.push(8);
    for (let n = 0; n < bytes.length; n += 255) { const block = bytes.slice(n, n + 255); out.push(block.length, ...block); }
    out.push(0);
  }

  // frames: as `reduced` gives them; pause: milliseconds between two.
  function encode(frames, wide, high, pause) {
    const { chosen, nearest } = palette(frames), two = (value) => [value & 255, value >> 8];
    const out = [...new TextEncoder().encode("GIF89a"), ...two(wide), ...two(high), 0xf7, 0, 0];
    for (let n = 0; n < COLOURS; n++) out.push(...(chosen[n] || [0, 0, 0]));
    out.push(0x21, 0xff, 11, ...new TextEncoder().encode("NETSCAPE2.0"), 3, 1, 0, 0, 0); // again and again
    frames.forEach((frame, at) => {
      const [left, top, columns, rows] = changed(frames[at - 1], frame, wide, high), indices = new Uint8Array(columns * rows);
      for (let row = 0, n = 0; row < rows; row++) for (let column = 0; column < columns; column++) indices[n++] = nearest[frame[(top + row) * wide + left + column]];
      out.push(0x21, 0xf9, 4, 4, ...two(Math.round(pause / 10)), 0, 0);
      out.push(0x2c, ...two(left), ...two(top), ...two(columns), ...two(rows), 0);
      compress(indices, out);
    });
    out.push(0x3b);
    return new Uint8Array(out);
  }

  return { reduced, encode };
})();
