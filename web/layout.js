// Keeps the words of a running answer in place. A mask is about as wide as a word, and the masks before a word grow and
// shrink so that the word stays in its column when they turn into text. It knows nothing about the page.

const NARROWEST = 8; // pixels of a mask
const WIDEST = 70;
const ENOUGH = 8;    // words whose mean width counts

export class Layout {
  #measure;      // returns the width of a text in pixels
  #columns = []; // where each position began in the last frame, in pixels, as if the answer were one line
  #settled = 0;
  static #usual = 34; // pixels of a mask: the mean width of the words so far, of all answers
  #isMeasured = false;

  constructor(measure) { this.#measure = measure; }

  /** Returns the width of each mask, and the gap before each written position. The blocks before position `settled` are
      finished: their gaps close, and the text behind them moves up once. */
  place(cells, settled) {
    if (settled > this.#settled) this.#columns = [];
    this.#settled = settled;
    const sizes = [], columns = [], typical = this.#widthOfMasks(cells);
    for (let i = 0, x = 0; i < cells.length;) {
      let end = i; // of the masks from here on
      while (end < cells.length && cells[end].pass < 0) end++;
      const word = end < cells.length ? this.#columns[end] : undefined;
      const share = word === undefined ? typical : Math.max(NARROWEST, (word - x) / (end - i));
      for (; i < end; i++, x += share) {
        sizes.push(share);
        columns.push(x);
      }
      if (i === cells.length) break;
      const gap = i >= settled ? Math.max(0, (this.#columns[i] ?? x) - x) : 0;
      sizes.push(gap);
      columns.push(x += gap);
      x += this.#measure(cells[i++].text);
    }
    this.#columns = columns;
    return sizes;
  }

  /** The masks of an answer get another width only once, so that they stay in place, too. */
  #widthOfMasks(cells) {
    const words = this.#isMeasured ? [] : cells.filter((c) => c.pass >= 0);
    if (words.length >= ENOUGH) {
      const mean = words.reduce((sum, c) => sum + this.#measure(c.text), 0) / words.length;
      Layout.#usual = Math.min(WIDEST, Math.max(NARROWEST, mean));
      this.#isMeasured = true;
    }
    return Layout.#usual;
  }
}
