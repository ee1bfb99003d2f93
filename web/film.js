// A film records the answer after each received pass, as differences. It knows nothing about the page.

/** One position: token id, text, the pass that wrote it (-1: a mask), confidence, and the change in the shown pass. */
const blank = () => ({ id: -1, text: "", pass: -1, confidence: null, change: "" });

export class Film {
  #frames = []; // {nfe, n, blocks, changes: [[i, id, text, pass, confidence]]}
  #last = [];   // the positions after the last frame
  #shown = this.#nothing(); // the positions, and the blocks by their start, after frame `at`
  changes = new Set();      // the kinds of change in all frames: "edited", "remasked"

  #nothing() { return { at: -1, cells: [], blocks: new Map() }; }

  get length() { return this.#frames.length; }
  get passes() { return this.length ? this.#frames[this.length - 1].nfe : 0; }

  /** Adds a snapshot of the server. It has the positions from token_offset on. */
  add(s) {
    const from = s.token_offset ?? 0, n = from + s.token_ids.length, changes = [];
    for (let i = from; i < Math.max(n, this.#last.length); i++) {
      const k = i - from, masked = i >= n || s.pass[k] < 0;
      const now = masked ? [i, -1, "", -1, null] : [i, s.token_ids[k], s.tokens[k], s.pass[k], s.confidence?.[k] ?? null];
      const was = this.#last[i];
      if (was && was.id === now[1] && was.pass === now[3] && was.text === now[2]) continue;
      if (was && was.pass >= 0 && i < n) this.#noteChange(was, now);
      changes.push(now);
      this.#last[i] = { id: now[1], text: now[2], pass: now[3] };
    }
    this.#last.length = n;
    this.#frames.push({ nfe: s.nfe, n, blocks: s.blocks ?? [], changes });
  }

  #noteChange(was, [, id, , pass]) {
    if (pass < 0) this.changes.add("remasked");
    else if (was.id !== id) this.changes.add("edited");
  }

  /** Returns the answer after frame k: {nfe, blocks, cells}. The next call changes blocks and cells: don't keep them.
      Frame -1 is before the first pass: only masks. */
  at(k) {
    if (k < 0) return { nfe: 0, blocks: new Map(), cells: Array.from({ length: this.#frames[0]?.n ?? 0 }, blank) };
    if (this.#shown.at > k) this.#shown = this.#nothing();
    const { cells, blocks } = this.#shown;
    for (let f = this.#shown.at + 1; f <= k; f++) {
      this.#apply(cells, this.#frames[f]);
      this.#updateBlocks(blocks, this.#frames[f]);
    }
    this.#shown.at = k;
    return { nfe: this.#frames[k].nfe, blocks, cells };
  }

  /** A frame lists the blocks in flight. Blocks that it no longer lists are stored. */
  #updateBlocks(blocks, frame) {
    for (const b of blocks.values()) b.status = "IN_CACHE";
    for (const b of frame.blocks) blocks.set(Math.max(0, b.start), { ...b });
  }

  #apply(cells, frame) {
    while (cells.length < frame.n) cells.push(blank());
    for (const c of cells) c.change = "";
    for (const [i, id, text, pass, confidence] of frame.changes) {
      if (i >= frame.n) continue;
      const c = cells[i], had = c.pass >= 0;
      if (pass < 0) c.change = had ? "remasked" : "";
      else c.change = had && c.id !== id ? "edited" : "fresh";
      Object.assign(c, { id, text, pass, confidence });
    }
    cells.length = frame.n;
  }
}

/** Counts and rates of one answer. Times are in milliseconds. */
export class Numbers {
  constructor(now = performance.now()) {
    Object.assign(this, { sent: now, first: null, end: null, tokens: 0, nfe: 0, engineTps: null, cached: null, prompt: null });
  }
  /** Takes the number of visible tokens, and of passes if known. */
  update(tokens, nfe, now = performance.now()) {
    if (tokens > 0 && this.first === null) this.first = now;
    this.tokens = tokens;
    if (nfe) this.nfe = nfe;
  }
  finish(now = performance.now()) { this.end ??= now; }
  /** The numbers as a plain object, with the times since the request was sent. Numbers.of reads it back. */
  toJSON() {
    const since = (t) => (t === null ? null : t - this.sent);
    return { ...this, sent: 0, first: since(this.first), end: since(this.end) };
  }
  static of(saved) {
    const n = new Numbers(0);
    for (const name of Object.keys(n)) if (Number.isFinite(saved?.[name])) n[name] = saved[name];
    n.finish(0);
    return n;
  }
  get ttft() { return this.first === null ? null : this.first - this.sent; }
  get seconds() { return ((this.end ?? performance.now()) - this.sent) / 1000; }
  get tps() { return this.seconds > 0 ? this.tokens / this.seconds : null; }
  get tpf() { return this.nfe ? this.tokens / this.nfe : null; }
}
