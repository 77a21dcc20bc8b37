// The explorer: a module for three hosts: a local server, a notebook, and a page without server.
// A host answers messages; the rest is here. Texts become text nodes, never markup.

const START = {
  text: "", hypothesis: "", question: "", candidates: "", mode: "threshold", threshold: 0.5, density: 0.5, seed: 0, forced: {},
  off: [],
};
const TEXTS = ["text", "hypothesis", "question", "candidates"];
const MODES = {
  threshold: "Open above a threshold",
  density: "A share of the most probable",
  sample: "A Bernoulli draw",
  expected: "Open probabilities (soft)",
  relaxed: "A relaxed draw (soft)",
  open: "All open",
};
const SETTING = { threshold: "threshold", density: "density", sample: "seed", relaxed: "seed" };
const ORDERS = { error: "largest error", share: "largest share of words read", leak: "largest gate leak" };
const HEADS = { error: "Error", share: "Share read", leak: "Gate leak" };
// The change of a probability at which the colour of a word is strongest.
const STRONG = 0.5;
const MOST_CLASSES = 10;
// Sentences on a page of their list, and the milliseconds after the last key of a search.
const PAGE = 20;
const PAUSE = 250;
const PAIRED = 40;
const SVG = "http://www.w3.org/2000/svg";
// Milliseconds between two attempts to reconnect, and before the page explains a wait.
const RETRY = 1500;
const PATIENCE = 700;

class Stopped extends Error {}

// ---------------------------------------------------------------- elements

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null && child !== false && child !== ""));
  return node;
}

const h = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const s = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const three = (value) => value.toFixed(3);
const signed = (value) => (value < 0 ? "\u2212" : "+") + three(Math.abs(value));
const percent = (value) => `${(100 * (value < 1 ? Math.min(value, 0.999) : 1)).toFixed(1)}%`;
const whole = (value) => value.toLocaleString("en");
const effectText = (value, decimals = 3) => {
  const text = Math.abs(value).toFixed(decimals);
  return Number(text) === 0 ? text : (value < 0 ? "\u2212" : "+") + text;
};
// The length of a bar of attention: one half at uniform attention, and 1 only without a limit.
const against = (value, uniform) => value / (value + uniform || 1);
// The effect at which the colour of a word is strongest; log-odds have no largest value.
const strongest = (weights, effects) => (weights.unit === "log-odds"
  ? Math.max(1, ...effects.map(Math.abs)) : STRONG);
const fallsBy = (name, unit) => (unit === "log-odds"
  ? ["Number: the log-odds of ", name, " fall by it without the word (log-odds, because its "
    + "probability is near 1)"]
  : ["Number: the probability of ", name, " falls by it without the word"]);
const times = (value, uniform) => `${(value / uniform).toFixed(1)} \u00d7`;

// ---------------------------------------------------------------- state

export function toFragment(state) {
  const parts = new URLSearchParams();
  for (const name of [...TEXTS, "mode", "threshold", "density", "seed"]) {
    if (state[name] !== START[name]) parts.set(name, state[name]);
  }
  const forced = Object.entries(state.forced).map(([i, open]) => i + (open ? "o" : "s"));
  if (forced.length) parts.set("forced", forced.join("."));
  for (const word of state.off) parts.append("off", word);
  return parts.toString();
}

export function fromFragment(fragment) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { ...START, forced: {}, off: parts.getAll("off") };
  for (const name of TEXTS) if (parts.has(name)) state[name] = parts.get(name);
  if (parts.get("mode") in MODES) state.mode = parts.get("mode");
  for (const name of ["threshold", "density"]) {
    const value = Number.parseFloat(parts.get(name));
    if (value >= 0 && value <= 1) state[name] = value;
  }
  const seed = Number.parseInt(parts.get("seed"), 10);
  if (seed >= 0 && seed < 2 ** 32) state.seed = seed;
  for (const one of (parts.get("forced") ?? "").split(".")) {
    if (/^\d{1,6}[os]$/.test(one)) state.forced[Number.parseInt(one, 10)] = one.endsWith("o");
  }
  return state;
}

// Forced gates stay with their words when words before or after them change.
export function carry(before, after, forced) {
  const most = Math.min(before.length, after.length);
  let front = 0;
  while (front < most && before[front] === after[front]) front += 1;
  let back = 0;
  while (back < most - front && before.at(-1 - back) === after.at(-1 - back)) back += 1;
  const moved = {};
  for (const [key, open] of Object.entries(forced)) {
    const place = Number(key);
    if (place < front) moved[place] = open;
    else if (place >= before.length - back) moved[place + after.length - before.length] = open;
  }
  return moved;
}

// The next state of a pressed gate: opposite to the model, then equal to the model, then free.
const cycle = (forced, free) => (forced === undefined ? !free : forced === free ? undefined : free);

// ---------------------------------------------------------------- the words of a model

class Panel {
  constructor(about, press, layers, most) {
    this.about = about;
    this.layers = about.layered && new Layers(layers);
    this.press = press;
    this.most = most;
    this.words = [];
    this.verdict = h("p", { class: "gx-verdict", "aria-live": "polite" });
    this.key = h("ul", { class: "gx-key", "aria-label": "Legend" });
    // The tokens are not isolated elements, because `dir="auto"` would then not see their letters.
    this.line = h("div", {
      class: "gx-words", lang: "", dir: "auto",
      role: about.gated ? "toolbar" : "group",
      "aria-label": about.gated ? "Words: press one to force its gate, arrows move" : "Words",
      onkeydown: (event) => this.move(event),
    });
    this.reading = h("p", { class: "gx-quiet" });
    this.effectNote = h("p", { class: "gx-quiet gx-effect-note" });
    this.classes = h("tbody");
    this.numbers = h("tbody");
    const head = (...names) => h("thead", {}, h("tr", {}, ...names.map((name) =>
      h("th", { scope: "col", colspan: name === "Probability" ? 2 : null,
        title: name === "Change" ? "the change of the probability by the forced gates" : null },
      name))));
    this.table = h("table", { class: "gx-numbers" },
      head("Word", "Effect", "Speaks for", ...(about.gated ? ["Open probability", "Gate"] : []),
        "Attention", "Against uniform"), this.numbers);
    this.details = h("details", { ontoggle: () => this.tabulate() },
      h("summary", {}, "Word by word"), scroller("Word by word", this.table));
    this.node = h("article", { class: "gx-model", "aria-label": about.name },
      h("h2", {}, h("bdi", {}, about.name), " ", h("span", { class: "gx-quiet" }, about.network)),
      this.verdict,
      h("div", { class: "gx-result" },
        h("div", { class: "gx-reading" }, this.key, this.line, this.reading, this.effectNote),
        h("table", { class: "gx-classes" },
          head("Class", "Probability", ...(about.gated ? ["Change"] : [])),
          this.classes)),
      this.details, this.layers && this.layers.node);
  }

  show(answer, state, label) {
    const before = this.tokens?.join(" ");
    this.tokens = answer?.tokens ?? [];
    this.answer = answer;
    this.node.hidden = !answer;
    if (!answer) return;
    const { probabilities, base } = answer;
    const best = probabilities.indexOf(Math.max(...probabilities));
    const was = base.indexOf(Math.max(...base));
    // Effects of the same words stay until new effects come, so that the words do not flicker.
    if (before !== this.tokens.join(" ") || best !== this.best) this.weights = undefined;
    this.best = best;
    this.soft = this.about.gated && (state.mode === "expected" || state.mode === "relaxed");
    this.forced = state.forced;
    const change = was === best ? "" : ` instead of ${this.about.classes[was]}`;
    const verdict = h("span", {}, h("strong", {}, h("bdi", {}, this.about.classes[best])), " ",
      h("span", { class: "gx-share" }, percent(probabilities[best])),
      change && h("span", { class: "gx-other" }, change));
    // Set only if the text differs, because a screen reader announces each change.
    if (this.verdict.textContent !== verdict.textContent) this.verdict.replaceChildren(verdict);
    while (this.words.length > this.tokens.length) this.words.pop().button.remove();
    while (this.words.length < this.tokens.length) this.words.push(this.word(this.words.length));
    this.words.forEach((word, i) => this.update(word, i));
    this.explain();
    this.summarize(answer);
    this.tabulate();
    if (this.layers) this.layers.show(this.tokens);
    const order = probabilities.map((_, i) => i);
    if (order.length > MOST_CLASSES) order.sort((a, b) => probabilities[b] - probabilities[a]);
    const shown = order.slice(0, MOST_CLASSES);
    this.classes.replaceChildren(...shown.map((i) => this.class_(i, i === best, label)));
    if (shown.length < order.length) {
      const rest = order.slice(MOST_CLASSES).reduce((sum, i) => sum + probabilities[i], 0);
      this.classes.append(h("tr", {},
        h("th", { scope: "row" }, `${order.length - MOST_CLASSES} more`),
        h("td", { class: "gx-bars" }, bar("gx-track", rest)),
        h("td", { class: "gx-n" }, three(rest)), this.about.gated && h("td")));
    }
  }

  // The effects of the words, which come after the answer; null if there are none.
  weigh(weights) {
    this.weights = weights;
    if (!this.answer) return;
    this.explain();
    this.words.forEach((word, i) => this.colour(word, i));
    const count = this.tokens.length;
    this.effectNote.textContent = weights ? ""
      : count < 2 ? "A single word has no effect of removal, because no text is left without it."
        : count > this.most
          ? `Effects of removal are computed for texts of at most ${this.most} words.`
          : "This page has no effects of removal, because it would become too large.";
    this.tabulate();
  }

  // The legend, which names the predicted class.
  explain() {
    const { classes, gated, pairs } = this.about;
    const name = (i) => h("strong", {}, h("bdi", {}, classes[i]));
    const item = (...parts) => h("li", {}, ...parts);
    const other = classes.length === 2 ? [" speaks for ", name(1 - this.best)]
      : [" speaks against ", name(this.best)];
    const key = [
      item(swatch("for", "+"), " speaks for ", name(this.best)),
      item(swatch("against", "\u2212"), ...other),
      item(...fallsBy(name(this.best), this.weights?.unit)),
    ];
    if (this.answer.read.includes(false)) {
      key.push(item(struck(), `: ${!gated && pairs ? "read by few words"
        : gated ? "not read" : "not read by attention"}`));
    }
    if (gated) key.push(item("Framed: forced open or closed by you"));
    if (this.answer.attention) {
      key.push(item(gauge(0.5), ` attention; the mark is uniform attention, 1\u00a0/\u00a0${this.tokens.length}`));
    }
    if (this.answer.known.includes(false)) key.push(item("? not in the vocabulary"));
    const list = h("ul", {}, ...key);
    if (this.key.textContent !== list.textContent) this.key.replaceChildren(...list.childNodes);
  }

  summarize(answer) {
    const count = answer.read.filter(Boolean).length;
    const all = this.tokens.length;
    const share = three(answer.share);
    let text = `Attention reads ${count} of ${all} words (share ${share}).`;
    if (!answer.attention) text = `The network reads all ${all} words.`;
    if (this.about.pairs) {
      text = `${count} of ${all} words are read by most words; ${share} of the pairs of words.`;
    }
    if (this.soft) text = `Soft gates: density ${share}, the mean of the gates.`;
    const rules = { max_gate: "the most probable gate is opened",
      soft: "attention reads all words", zeros: "attention reads no word" };
    if (answer.rule) text += ` All closed: ${rules[answer.rule]}.`;
    this.reading.textContent = text;
  }

  class_(i, best, label) {
    const { probabilities, base } = this.answer;
    const value = probabilities[i];
    const name = this.about.classes[i];
    const track = bar("gx-track", value);
    if (this.about.gated && Math.abs(value - base[i]) >= 5e-4) {
      const mark = h("b", { title: `without forced gates: ${three(base[i])}` });
      mark.style.setProperty("--a", base[i]);
      track.append(mark);
    }
    const row = h("tr", { class: best && "gx-best", "data-probability": value, "data-class": i },
      h("th", { scope: "row" }, h("bdi", {}, name),
        name === label && h("span", { class: "gx-tag" }, "label")),
      h("td", { class: "gx-bars" }, track), h("td", { class: "gx-n" }, three(value)));
    const moved = value - base[i];
    const same = Math.abs(moved) < 5e-4;
    if (this.about.gated) row.append(h("td", { class: "gx-n" }, same ? "\u2013" : signed(moved)));
    return row;
  }

  word(i) {
    const word = {
      token: h("span", { class: "gx-token" }),
      unknown: h("span", { class: "gx-unknown", "aria-hidden": "true" }),
      effect: h("span", { class: "gx-effect", "aria-hidden": "true" }),
      gauge: gauge(0),
    };
    // The space separates the word and the number for a screen reader.
    const inside = [
      h("span", { class: "gx-in" }, word.token, word.unknown),
      word.gauge, " ", word.effect];
    word.button = this.about.gated
      ? h("button", { type: "button", class: "gx-word", tabindex: i ? -1 : 0,
        onclick: () => this.press(i, this.answer.free[i], this.tokens[i]), onfocus: () => this.enter(i) }, ...inside)
      : h("span", { class: "gx-word" }, ...inside);
    this.line.append(word.button);
    return word;
  }

  update(word, i) {
    const { read, gates, attention, known } = this.answer;
    const gated = gates != null;
    const forced = gated ? this.forced[i] : undefined;
    let state = !read[i] ? "closed" : gated ? "open" : "read";
    if (this.soft) state = forced == null ? "soft" : forced ? "open" : "closed";
    word.token.textContent = this.tokens[i];
    word.unknown.textContent = known[i] ? "" : "?";
    word.gauge.hidden = !attention;
    const uniform = 1 / this.tokens.length;
    word.gauge.firstChild.style.setProperty("--a", attention ? against(attention[i], uniform) : 0);
    const data = word.button.dataset;
    data.gate = state;
    data.known = known[i];
    data.forced = forced == null ? "auto" : forced ? "open" : "closed";
    this.colour(word, i);
  }

  // The effect of a word, and its description for a pointer and a screen reader.
  colour(word, i) {
    const { gates, open, free, attention, known } = this.answer;
    const forced = gates ? this.forced[i] : undefined;
    const effect = this.weights?.effects[i];
    const data = word.button.dataset;
    word.effect.textContent = effect !== undefined ? effectText(effect)
      : this.weights === null ? "\u2013" : "\u2026";
    data.speaks = effect === undefined || Math.abs(effect) < 5e-4 ? "" : effect < 0 ? "against" : "for";
    if (effect === undefined) delete data.effect;
    else data.effect = effect;
    const strong = this.weights ? strongest(this.weights, this.weights.effects) : STRONG;
    word.button.style.setProperty("--e", Math.sqrt(Math.min(Math.abs(effect ?? 0) / strong, 1)));
    const numbers = [
      gates && `gate ${forced == null ? "" : "forced "}${this.soft ? three(gates[i]) : data.gate}`,
      gates && `open with probability ${three(open[i])}`,
      attention && `attention ${three(attention[i])} (${times(attention[i], 1 / this.tokens.length)} uniform)`,
      effect !== undefined
        && `effect ${effectText(effect)}${this.weights.unit === "log-odds" ? " log-odds" : ""}: speaks for `
        + this.about.classes[this.weights.speaks_for[i]],
      !known[i] && "not in the vocabulary",
    ].filter(Boolean).join(", ");
    word.button.title = numbers;
    if (!gates) return;
    const then = cycle(forced, free[i]);
    const next = then === undefined ? "press to release it"
      : `press to force it ${then ? "open" : "closed"}`;
    // A name begins with the visible text, so that speech control finds the button.
    const seen = [this.tokens[i] + word.unknown.textContent, word.effect.textContent].join(" ");
    word.button.setAttribute("aria-label", `${seen}: ${numbers}; ${next}`);
    word.button.setAttribute("aria-pressed", forced != null);
  }

  enter(place) {
    this.words.forEach((word, i) => word.button.setAttribute("tabindex", i === place ? 0 : -1));
  }

  move(event) {
    const here = this.words.findIndex((word) => word.button === document.activeElement
      || word.button === event.target.closest?.(".gx-word"));
    const last = this.words.length - 1;
    const right = getComputedStyle(this.line).direction === "rtl" ? here - 1 : here + 1;
    const there = { ArrowRight: right, ArrowLeft: 2 * here - right, Home: 0, End: last }[event.key];
    if (!this.about.gated || here < 0 || there == null) return;
    event.preventDefault();
    this.words[Math.min(Math.max(there, 0), last)].button.focus();
  }

  tabulate() {
    if (!this.details.open || !this.answer) return;
    const { gates, open, attention } = this.answer;
    const effects = this.weights?.effects;
    const number = (text) => h("td", { class: "gx-n" }, text ?? "\u2013");
    this.numbers.replaceChildren(...this.tokens.map((token, i) => h("tr", {},
      h("th", { scope: "row", lang: "" }, h("bdi", {}, token)),
      number(effects && effectText(effects[i])),
      h("td", {}, h("bdi", {}, effects ? this.about.classes[this.weights.speaks_for[i]] : "\u2013")),
      gates && number(three(open[i])), gates && number(three(gates[i])),
      number(attention && three(attention[i])),
      number(attention && times(attention[i], 1 / this.tokens.length)))));
  }
}

// The attention in the layers of a network, which is requested when the part is opened.
class Layers {
  constructor(ask, open = false) {
    this.ask = ask;
    this.choice = h("select", { "aria-label": "Layer and head", onchange: () => this.draw() });
    this.note = h("p", { class: "gx-quiet", role: "status" });
    this.table = h("table", { class: "gx-pairs" });
    this.node = h("details", { class: "gx-layers", open,
      ontoggle: () => this.show(this.tokens, this.texts) },
      h("summary", {}, "Layer by layer"), h("div", { class: "gx-controls" }, this.choice),
      this.note, scroller("Layer by layer", this.table));
  }

  // `texts` has all values on which the layers depend.
  async show(tokens, texts = tokens) {
    this.tokens = tokens;
    this.texts = texts;
    const key = JSON.stringify(texts);
    if (!this.node.open || key === this.key || !texts?.length) return;
    this.key = key;
    if (!this.layers) {
      this.choice.parentNode.hidden = true;
      this.note.textContent = "Computing the attention of each layer \u2026";
    }
    try {
      const layers = (await this.ask()) ?? [];
      if (this.key !== key) return;
      this.layers = layers;
    } catch (error) {
      this.key = null;
      this.note.textContent = error.message;
      return;
    }
    const names = this.layers.map((layer) => layer.name).join();
    if (this.names !== names) {
      this.names = names;
      this.choice.replaceChildren(
        ...this.layers.map((layer, i) => h("option", { value: i }, layer.name)));
    }
    this.choice.parentNode.hidden = !this.layers[0]?.pairs;
    this.draw();
  }

  draw() {
    const one = this.layers[Number(this.choice.value)] ?? this.layers[0];
    const cell = (value, uniform, mark, title) => {
      const node = h("td", { class: "gx-cell", title }, mark ?? three(value));
      node.style.setProperty("--a", against(value, uniform));
      return node;
    };
    const token = (i, scope) => h("th", { scope, lang: "" }, h("bdi", {}, this.tokens[i]));
    if (!one) {
      this.note.textContent = "No layer of this network has attention.";
      this.table.replaceChildren();
    } else if (one.pairs) {
      const { rows, columns, selected, uniform } = one;
      const cut = one.cut ? ` The first ${PAIRED} of each axis are shown.` : "";
      const word = (token, scope) => h("th", { scope, lang: "" }, h("bdi", {}, token));
      this.note.textContent = `${one.name}. ${one.note} The shade is the weight against uniform `
        + `attention${selected ? ", and \u25cf marks a selected pair" : ""}.${cut}`;
      this.table.replaceChildren(
        h("thead", {}, h("tr", {}, h("td"), ...columns.map((token) => word(token, "col")))),
        h("tbody", {}, ...rows.map((token, i) => h("tr", {}, word(token, "row"),
          ...columns.map((other, j) => cell(one.pairs[i][j], uniform, selected?.[i][j] ? "\u25cf" : "",
            `${token} \u2192 ${other}: ${three(one.pairs[i][j])}`))))));
    } else {
      this.note.textContent = "The attention of each layer to each word. The shade is the "
        + "attention against uniform attention.";
      this.table.replaceChildren(
        h("thead", {}, h("tr", {}, h("td"),
          ...this.layers.map((layer) => h("th", { scope: "col" }, layer.name)))),
        h("tbody", {}, ...this.tokens.map((_, i) => h("tr", {}, token(i, "row"),
          ...this.layers.map((layer) => cell(layer.values[i], 1 / this.tokens.length))))));
    }
  }
}

// The answer of a network that reads or writes several texts.
class Board {
  constructor(about, press, layers) {
    this.about = about;
    this.press = press;
    this.layers = about.layered && new Layers(layers, true);
    this.title = h("p", { class: "gx-verdict", "aria-live": "polite" });
    this.note = h("p", { class: "gx-quiet" });
    this.head = h("tr");
    this.classes = h("tbody");
    this.table = h("table", { class: "gx-classes" }, h("thead", {}, this.head), this.classes);
    this.word = h("select", { onchange: () => { this.chosen = true; this.draw(); } });
    this.key = h("ul", { class: "gx-key", "aria-label": "Legend" });
    this.choice = h("div", { class: "gx-controls" },
      this.chooses = h("label", {}, this.asks = h("span"), this.word));
    this.lines = h("div");
    this.node = h("article", { class: "gx-model gx-board", "aria-label": about.name },
      h("h2", {}, h("bdi", {}, about.name), " ", h("span", { class: "gx-quiet" }, about.network)),
      this.title, this.note, this.table, this.choice, this.key, this.lines, this.layers && this.layers.node);
  }

  show(answer, state, label) {
    this.node.hidden = !answer;
    this.answer = answer;
    if (!answer) return;
    const { title, share, classes, probabilities, details, before } = answer;
    const change = before && [title !== before.title && before.title,
      before.share != null && percent(before.share)].filter(Boolean).join(" ");
    const exclusive = answer.exclusive !== false;
    this.weights = undefined;
    const said = h("span", {}, h("strong", {}, h("bdi", {}, title)), " ",
      share != null && h("span", { class: "gx-share" }, percent(share)),
      change && h("span", { class: "gx-other" }, ` instead of ${change}`));
    if (this.title.textContent !== said.textContent) this.title.replaceChildren(said);
    this.note.textContent = answer.note;
    this.table.hidden = !classes.length;
    const detailsHead = details && (answer.details_head ?? "Occurs");
    this.head.replaceChildren(...[answer.head, "Probability", detailsHead]
      .filter(Boolean).map((name) =>
        h("th", { scope: "col", colspan: name === "Probability" ? 2 : null }, name)));
    const order = answer.order
      ?? classes.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a]);
    const best = answer.best ?? order.slice(0, 1);
    this.classes.replaceChildren(...order.slice(0, MOST_CLASSES).map((i) => h("tr",
      { class: best.includes(i) && "gx-best", "data-probability": probabilities[i], "data-class": i },
      h("th", { scope: "row" }, h("bdi", {}, classes[i]),
        classes[i] === label && h("span", { class: "gx-tag" }, "label")),
      h("td", { class: "gx-bars" }, bar("gx-track", probabilities[i])),
      h("td", { class: "gx-n" }, three(probabilities[i])),
      details && h("td", { class: "gx-quiet" }, details[i]))));
    if (order.length > MOST_CLASSES) {
      const more = order.slice(MOST_CLASSES).map((i) => probabilities[i]);
      const rest = exclusive ? more.reduce((sum, p) => sum + p, 0) : Math.max(...more);
      this.classes.append(h("tr", {},
        h("th", { scope: "row" }, `${more.length} more${exclusive ? "" : ", each at most"}`),
        h("td", { class: "gx-bars" }, bar("gx-track", rest)),
        h("td", { class: "gx-n" }, three(rest)), details && h("td")));
    }
    this.choose();
    this.draw();
    if (this.layers) this.layers.show([], TEXTS.map((name) => state[name]));
  }

  // The effects of the words, which come after the answer.
  weigh(weights) {
    this.weights = weights;
    if (this.answer) this.draw();
  }

  // The lines with the effects of their words, which are \u2026 until they come.
  shown() {
    const { lines } = this.answer;
    if (!this.about.weighed || this.weights === null) return lines;
    const strong = this.weights ? strongest(this.weights, this.weights.lines.flat()) : STRONG;
    return lines.map((line, k) => ({ ...line, effects: true, strong,
      values: this.weights?.lines[k] ?? line.tokens.map(() => undefined) }));
  }

  // The chosen word stays chosen; at first it is the placeholder.
  choose() {
    const words = this.answer.lines.find((line) => line.of)?.of;
    this.choice.hidden = !words;
    this.asks.textContent = this.answer.choice ?? "Word of the question: ";
    if (!words) return;
    if (JSON.stringify(words) === this.words) {
      // Parts are of the predicted class until another class is chosen.
      if (this.answer.choice && !this.chosen) this.word.value = this.answer.chosen;
      return;
    }
    const chosen = this.words && JSON.parse(this.words)[this.word.value];
    this.words = JSON.stringify(words);
    this.word.replaceChildren(...words.map((word, i) => h("option", { value: i }, word)));
    const places = [chosen, "@placeholder"].map((word) => words.indexOf(word));
    this.word.value = places.find((place) => place >= 0) ?? this.answer.chosen ?? 0;
  }

  draw() {
    const chosen = Number(this.word.value);
    this.explain(chosen);
    this.lines.replaceChildren(...this.shown().map((line) => {
      const values = line.of ? line.values[chosen] : line.values;
      const what = !line.of || line.effects ? "" : ": how much of each word\u2019s attention goes to "
        + `\u201c${line.of[chosen]}\u201d`;
      const kind = line.effects ? "gx-line-of" : "gx-line-of gx-hop";
      return h("section", { class: kind, "aria-label": line.name },
        h("h3", {}, line.name, h("span", { class: "gx-quiet" }, what)),
        line.note && h("p", { class: "gx-quiet" }, line.note),
        h("div", { class: "gx-words", lang: "", dir: "auto", tabindex: 0, role: "group",
          "aria-label": `${line.name}: words` },
        ...line.tokens.map((token, i) => this.token(line, token, i, values?.[i]))),
        line.totals && h("p", { class: "gx-quiet" },
          `${line.totals[line.of ? chosen : 0]} ${line.rule}`));
    }));
  }

  // The legend of the lines; parts belong to the chosen class or label, or to a number.
  explain(chosen) {
    const lines = this.shown();
    const { signs } = this.answer;
    const item = (...parts) => h("li", {}, ...parts);
    const parts = lines.find((line) => line.effects);
    const name = () => h("strong", {}, h("bdi", {},
      parts.of ? parts.of[chosen] : this.answer.title));
    this.key.replaceChildren(...[
      ...(!parts ? [] : signs ? [item(swatch("for", "+"), ` ${signs[0]}`),
        item(swatch("against", "\u2212"), ` ${signs[1]}`)]
        : [item(swatch("for", "+"), " speaks for ", name()),
          item(swatch("against", "\u2212"), " speaks against it")]),
      parts && !parts.of && !signs && item(...fallsBy(name(), this.weights?.unit)),
      lines.some((line) => line.read?.includes(false)) && item(struck(), ": not read"),
      this.about.switched && item("Framed: switched off by you"),
      lines.some((line) => line.uniform)
        && item(gauge(0.5), " attention; the mark is uniform attention"),
      lines.some((line) => line.known.includes(false))
        && item(lines.some((line) => line.read) ? "? unknown: in no training text"
          : "? not in the vocabulary"),
    ].filter(Boolean));
  }

  // A word with its number: attention against uniform, or a signed effect on a class. A word that is
  // not read has no number. The user presses a word that is read, or that is switched off.
  token(line, token, i, value) {
    const shaded = value != null && !line.effects;
    const noun = line.noun ?? "effect";
    const off = line.off?.[i];
    const counts = line.effects && !(line.read && !line.read[i]);
    const text = value != null && counts ? effectText(value, line.decimals) : "\u2026";
    const numbers = [
      shaded && `attention ${three(value)} (${times(value, line.uniform)} uniform)`,
      line.read && (off ? "switched off" : line.read[i] ? "read" : "not read"),
      counts && value != null && `${noun} ${text}`,
      !line.known[i] && "not in the vocabulary",
    ].filter(Boolean).join(", ");
    const pressed = this.press && (off || line.read?.[i]);
    const next = !this.about.switched ? "" : off ? "; press to switch it on" : "; press to switch it off";
    const node = h(pressed ? "button" : "span", { class: "gx-word", title: numbers,
      "data-known": line.known[i], "data-marked": line.marked?.[i], "data-value": value,
      "data-gate": line.read && (line.read[i] ? "open" : "closed"),
      "data-forced": off && "closed",
      ...(pressed && { type: "button", "aria-pressed": String(Boolean(off)),
        "aria-label": `${token} ${counts ? text : ""}: ${numbers}${next}`,
        onclick: () => this.press(token, i) }) },
    h("span", { class: "gx-in" },
      h("span", { class: "gx-token" }, token),
      h("span", { class: "gx-unknown", "aria-hidden": "true" }, line.known[i] ? "" : "?"),
      line.marks?.[i] && h("sup", { class: "gx-pair" }, line.marks[i])),
    shaded && gauge(against(value, line.uniform)),
    counts && h("span", { class: "gx-effect" }, text));
    if (counts && value != null && Number.parseFloat(text.slice(1)) !== 0) {
      node.dataset.speaks = value < 0 ? "against" : "for";
      node.style.setProperty("--e", Math.sqrt(Math.min(Math.abs(value) / line.strong, 1)));
    }
    return node;
  }
}

// A table that scrolls sideways on a small screen. Only then it can have the focus, so that the
// arrow keys scroll it and the Tab key has no needless stop.
function scroller(label, table) {
  const node = h("div", { class: "gx-scroll" }, table);
  const observer = new ResizeObserver(() => {
    const scrolls = node.scrollWidth > node.clientWidth;
    for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", label]]) {
      if (scrolls) node.setAttribute(name, value);
      else node.removeAttribute(name);
    }
  });
  observer.observe(node);
  observer.observe(table);
  return node;
}

function bar(name, share) {
  const inner = h("i");
  inner.style.setProperty("--a", share);
  return h("span", { class: name, "aria-hidden": "true" }, inner);
}

// A sample of the mark of words that are not read, on all pages.
const struck = () => h("del", { class: "gx-struck" }, "Struck through");

// A sample of the colour of a word that speaks for or against a class.
function swatch(speaks, text) {
  const node = h("span", { class: "gx-swatch", "data-speaks": speaks }, text);
  node.style.setProperty("--e", 0.8);
  return node;
}

// A bar of attention with a mark at uniform attention.
function gauge(share) {
  const node = bar("gx-attention", share);
  node.append(h("b"));
  return node;
}

// ---------------------------------------------------------------- labelled sentences

const WIDE = 460, HIGH = 220, LEFT = 56, TOP = 12, RIGHT = 12, BOTTOM = 38;

class Sentences {
  constructor(about, ask, load, worst) {
    this.about = about;
    this.ask = ask;
    this.load = load;
    this.worst = worst;
    this.begin = 0;
    this.chart = s("svg", { class: "gx-chart", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
    this.heading = h("h3", {}, "Accuracy against the share of words read");
    this.point = h("p", { class: "gx-point", role: "status" });
    this.note = h("p", { class: "gx-quiet" }, "Reading the sentences \u2026");
    const turn = (begin) => () => this.page(begin());
    const first = turn(() => 0);
    this.order = h("select", { onchange: first });
    this.label = h("select", { onchange: first, "data-filter": "label" });
    this.predicted = h("select", { onchange: first, "data-filter": "predicted" });
    this.wrong = h("input", { type: "checkbox", onchange: first });
    let timer = null;
    this.word = h("input", { type: "search", spellcheck: "false", "data-filter": "word",
      oninput: () => { clearTimeout(timer); timer = setTimeout(() => this.search(), PAUSE); } });
    this.decides = h("input", { type: "checkbox", onchange: first });
    this.deciding = h("p", { class: "gx-quiet gx-deciding", role: "status" });
    this.back = h("button", { type: "button", onclick: turn(() => this.begin - PAGE) }, "Previous");
    this.next = h("button", { type: "button", onclick: turn(() => this.begin + PAGE) }, "Next");
    this.where = h("span", { class: "gx-quiet", role: "status" });
    this.head = h("tr");
    this.rows = h("tbody");
    this.leak = h("p", { class: "gx-quiet gx-leak" });
    this.body = h("div", { class: "gx-split", hidden: true },
      h("div", { class: "gx-curve" }, this.heading, this.chart, this.point),
      h("div", { class: "gx-list" },
        h("div", { class: "gx-controls" },
          h("label", {}, "Label ", this.label), h("label", {}, "Predicted ", this.predicted),
          h("label", {}, this.wrong, "Wrong only"), h("label", {}, "Word ", this.word),
          h("label", {}, this.decides, "Decided by the word")),
        this.deciding,
        h("div", { class: "gx-controls" }, h("label", {}, "Sorted by ", this.order), this.back,
          this.next, this.where),
        h("div", { class: "gx-scroll" },
          h("table", { class: "gx-sentences" }, h("thead", {}, this.head), this.rows)),
        this.leak));
    this.node = h("section", { class: "gx-set", "aria-label": "Labelled sentences" },
      h("h2", {}, "Labelled sentences"), this.note, this.body);
  }

  async start() {
    let found = await this.ask({ do: "sentences" });
    while (!found.ready) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      found = await this.ask({ do: "sentences" });
    }
    if (found.failed) {
      this.note.textContent = found.failed;
      return;
    }
    this.found = found;
    const total = found.rows.length;
    const cut = found.more ? `the first ${whole(total)}` : whole(total);
    this.note.textContent = `${found.name}: ${cut} sentences. Press a sentence to open it.`;
    const some = found.leaks < total
      ? ` It is measured for the first ${whole(found.leaks)} sentences.` : "";
    this.leak.textContent = found.leaks ? "Gate leak: how much the probability of the predicted "
      + "class changes when all words that are not read are deleted from the text. At 0 they have "
      + `no influence; above 0 the network has read them before its gates.${some}` : "";
    this.order.replaceChildren(
      ...found.orders.map((name) => h("option", { value: name }, ORDERS[name])));
    for (const name of ["label", "predicted"]) {
      const values = [...new Set(found.rows.map((row) => row[name]))].sort();
      this[name].replaceChildren(h("option", { value: "" }, "any"),
        ...values.map((value) => h("option", { value: `=${value}` }, value)));
    }
    const names = ["Sentence", "Label", "Predicted", ...found.orders];
    this.head.replaceChildren(...names.map((name) => h("th", { scope: "col" },
      HEADS[name] ?? name)));
    this.body.hidden = false;
    this.draw();
    // A lexicon, or a network without gates, has no threshold to choose: a point is no curve.
    if (found.curves.every((curve) => curve.threshold.length < 2)) {
      this.heading.textContent = "Accuracy";
      this.chart.style.display = "none";
    }
    this.mark(this.state ?? START);
    this.page(0);
    if (this.order.value === "error") this.worst(this.listed()[0]);
  }

  // Looks up the sentences with the word of the filter, and those that it decides.
  async search() {
    const word = this.word.value.trim();
    this.searched = word ? await this.ask({ do: "word", word }).catch(() => null) : null;
    if (word !== this.word.value.trim()) return;
    const { has, decided } = this.searched ?? {};
    this.deciding.textContent = !has ? "" : `\u201c${word}\u201d is in ${whole(has.length)} `
      + `sentence${has.length === 1 ? "" : "s"}, and ${this.about.models[0].name} predicts another class for `
      + `${whole(decided.length)} of them when the word is taken out.`;
    this.page(0);
  }

  // Lists the sentences that a word decides.
  decide(word) {
    for (const select of [this.label, this.predicted]) select.value = "";
    this.wrong.checked = false;
    this.decides.checked = true;
    this.word.value = word;
    this.search();
    this.node.scrollIntoView?.({ block: "start" });
  }

  // The sentences that pass the filters, in their order.
  listed() {
    const order = this.order.value;
    const { has, decided } = this.searched ?? {};
    const allowed = has && new Set(this.decides.checked ? decided : has);
    const passes = (select, value) => !select.value || select.value === `=${value}`;
    return this.found.rows
      .filter((row, i) => row[order] != null && (!allowed || allowed.has(i))
        && passes(this.label, row.label) && passes(this.predicted, row.predicted)
        && (!this.wrong.checked || row.label !== row.predicted))
      .sort((a, b) => b[order] - a[order]);
  }

  page(begin) {
    const listed = this.listed();
    const rows = listed.slice(begin, begin + PAGE);
    this.begin = begin;
    this.where.textContent = !rows.length ? "no sentence"
      : `${begin + 1}\u2013${begin + rows.length} of ${whole(listed.length)}`;
    this.back.disabled = begin === 0;
    this.next.disabled = begin + rows.length >= listed.length;
    this.decides.disabled = !this.searched;
    this.rows.replaceChildren(...rows.map((row) => h("tr", {},
      h("td", {}, h("button", { type: "button", class: "gx-load", title: row.text, lang: "",
        onclick: () => this.load(row) }, h("bdi", {}, row.text))),
      h("td", {}, row.label),
      h("td", { class: row.label !== row.predicted && "gx-other" }, row.predicted),
      ...this.found.orders.map((name) =>
        h("td", { class: "gx-n" }, row[name] == null ? "\u2013" : three(row[name]))))));
  }

  draw() {
    const { curves } = this.found;
    const values = curves.flatMap((curve) => curve.accuracy);
    const low = Math.max(0, Math.floor(10 * Math.min(...values) - 0.2) / 10);
    const high = Math.min(1, Math.ceil(10 * Math.max(...values) + 0.2) / 10);
    this.x = (d) => LEFT + d * (WIDE - LEFT - RIGHT);
    this.y = (a) => TOP + ((high - a) / (high - low)) * (HIGH - TOP - BOTTOM);
    const parts = [s("title", {}, "Accuracy against the share of words read")];
    const label = (x, y, anchor, text) => s("text", { x, y, "text-anchor": anchor }, text);
    for (let n = 0; n <= 4; n += 1) {
      const a = low + (n * (high - low)) / 4;
      parts.push(s("line", { class: "gx-grid", x1: LEFT, x2: WIDE - RIGHT, y1: this.y(a),
        y2: this.y(a) }), label(LEFT - 6, this.y(a) + 4, "end", a.toFixed(3).replace(/0$/, "")));
      parts.push(label(this.x(n / 4), HIGH - BOTTOM + 16, "middle", `${n / 4}`));
    }
    parts.push(s("text", { x: 12, y: (TOP + HIGH - BOTTOM) / 2, "text-anchor": "middle",
      transform: `rotate(-90 12 ${(TOP + HIGH - BOTTOM) / 2})` }, "accuracy"));
    parts.push(label(this.x(0.5), HIGH - 4, "middle", "share of words read"));
    curves.forEach((curve, k) => {
      const points = curve.share.map((d, i) => [this.x(d), this.y(curve.accuracy[i])]);
      parts.push(s("polyline", { class: `gx-line gx-line${k}`, points: points.join(" ") }));
      for (const [x, y] of points) {
        parts.push(k ? s("rect", { class: "gx-dot gx-line1", x: x - 3, y: y - 3, width: 6,
          height: 6 }) : s("circle", { class: "gx-dot gx-line0", cx: x, cy: y, r: 3 }));
      }
    });
    this.rings = curves.map((_, k) => s("circle", { class: `gx-ring gx-line${k}`, r: 7 }));
    this.chart.replaceChildren(...parts, ...this.rings);
    this.legend = curves.map((_, k) => (k ? "\u25a0" : "\u25cf"));
  }

  // The point of the current setting of the gates on the curves.
  mark(state) {
    this.state = state;
    if (!this.found) return;
    const said = this.found.curves.map((curve, k) => {
      let at = curve.share.length - 1;
      const nearest = (values, wanted) => values.reduce((best, value, i) =>
        (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);
      if (state.mode === "threshold") at = nearest(curve.threshold, state.threshold);
      if (state.mode === "density") at = nearest(curve.share, state.density);
      // Draws and soft gates have no point, because the curve is over thresholds.
      const on = !this.about.models[k].gated || ["threshold", "density", "open"]
        .includes(state.mode);
      this.rings[k].setAttribute("visibility", on ? "visible" : "hidden");
      if (!on) return [];
      this.rings[k].setAttribute("cx", this.x(curve.share[at]));
      this.rings[k].setAttribute("cy", this.y(curve.accuracy[at]));
      return [h("span", { class: `gx-key${k}`, "aria-hidden": "true" }, this.legend[k]),
        ` ${this.about.models[k].name}: accuracy ${three(curve.accuracy[at])} with a share of `
        + `${three(curve.share[at])} read. `];
    });
    const line = h("span", {}, ...said.flat());
    if (this.point.textContent !== line.textContent) this.point.replaceChildren(line);
  }
}

// ---------------------------------------------------------------- the page

export class Explorer {
  constructor(root, host) {
    this.root = root;
    this.host = host;
    this.state = { ...START, ...host.state };
    this.wanted = 0;
    this.shown = 0;
    this.weighed = 0;
    this.tokens = null;
    this.known = new Map();
    root.classList.add("gx");
  }

  async start() {
    this.about = await this.patiently(() => this.host.ask({ do: "about" }));
    this.build();
    this.open();
    this.control();
    this.refresh();
    this.sentences?.start().catch(() => {});
    return this;
  }

  // The first text: of a labelled sentence, or an example, unless the state has a text.
  open() {
    const { first, example, origin } = this.about;
    if (Object.keys(this.texts).some((name) => this.state[name])) return;
    if (first) this.know(first, `The first sentence of ${first.name}.`);
    else if (example?.text) this.known.set(example.text, origin);
    this.state = { ...this.state, ...(first ? { text: first.text } : example) };
    this.opened = JSON.stringify(this.state);
  }

  // The label and the origin of a text, which are shown with it.
  know({ text, label }, note) {
    this.known.set(text, { label, note });
  }

  // The sentence with the largest error takes the place of the first, unless the state has changed.
  worst(row) {
    const note = `The sentence with the largest error of ${this.sentences.found.name}.`;
    if (!row || this.opened !== JSON.stringify(this.state)) return;
    this.know(row, note);
    this.tokens = null;
    this.change({ text: row.text });
  }

  build() {
    const { models, modes, library } = this.about;
    const set = (name, read) => (event) => this.change({ [name]: read(event.target) });
    const number = (input) => Number(input.value);
    const { fields } = this.about;
    this.texts = Object.fromEntries(fields.map(({ name, empty }) => [name,
      h("textarea", { rows: 1, spellcheck: "false", lang: "", dir: "auto", "data-field": name,
        readonly: !this.host.edits, placeholder: empty,
        oninput: (event) => this.change({ [name]: event.target.value }, true) })]));
    this.text = this.texts.text;
    this.mode = h("select", { onchange: set("mode", (select) => select.value) },
      ...modes.map((mode) => h("option", { value: mode }, MODES[mode])));
    const slider = (name, label) => {
      const input = h("input", { type: "range", min: 0, max: 1, step: 0.01,
        oninput: set(name, number) });
      const output = h("output");
      return { input, output, node: h("label", { "data-for": name }, label, input, output) };
    };
    this.sliders = { threshold: slider("threshold", "Threshold "),
      density: slider("density", "Density ") };
    this.seed = h("input", { type: "number", min: 0, max: 2 ** 32 - 1, step: 1,
      oninput: (event) => event.target.validity.valid && event.target.value
        && this.change({ seed: number(event.target) }) });
    this.seeds = h("span", { class: "gx-seed" }, h("label", {}, "Seed ", this.seed),
      h("button", { type: "button", onclick: () =>
        this.change({ seed: (this.state.seed + 1) % 2 ** 32 }) }, "Draw again"));
    this.release = h("button", { type: "button", onclick: () => this.change({ forced: {} }) },
      "Release all gates");
    this.restore = h("button", { type: "button", onclick: () => this.change({ off: [] }) },
      "Switch all words on");
    this.decided = h("button", { type: "button", class: "gx-decided", hidden: true });
    this.status = h("p", { class: "gx-status", role: "status" });
    this.notes = h("p", { class: "gx-notes", role: "status" });
    const gated = modes.length > 0;
    const controls = h("div", { class: "gx-controls" },
      gated && h("label", {}, "Test-time gates: ", this.mode),
      gated && this.sliders.threshold.node, gated && this.sliders.density.node,
      gated && this.seeds, gated && this.release,
      models.some((about) => about.switched) && this.restore, this.decided,
      h("span", { class: "gx-push" },
        this.host.link && h("button", { type: "button", onclick: () => this.copy() }, "Copy link"),
        h("button", { type: "button", onclick: () => this.save() }, "Save picture")));
    const switched = models.some((about) => about.switched);
    const weighed = models.some((about) => about.panel === "words");
    const whose = switched ? " of the network" : "";
    const purpose = [
      (!weighed || switched) && this.host.edits && "Change a text, and the model runs again.",
      weighed && `Each word${whose} has the change of the prediction when the word is removed and `
        + "the network runs again.",
      gated && `Press a word${whose} to force its gate open or closed.`,
      switched && "Press a word with a part to switch it off: the model then reads the text "
        + "without it."].filter(Boolean).join(" ");
    const fixed = !this.host.edits && h("p", { class: "gx-quiet gx-fixed" }, this.host.fixed);
    this.origin = h("p", { class: "gx-quiet gx-origin" });
    const foot = library && h("footer", { class: "gx-foot gx-quiet" },
      `Made with ${library.name} ${library.version}`);
    this.panels = models.map((about, k) => {
      const layers = async () =>
        (await this.host.ask({ do: "layers", ...this.state })).models[k];
      // Without labelled sentences, only the words of a lexicon can be pressed.
      const press = (about.switched || this.about.sentences)
        && ((word) => this.toggle(word, about.switched));
      return about.panel === "lines" ? new Board(about, press, layers)
        : new Panel(about, (i, free, word) => this.press(i, free, word), layers, this.about.effects);
    });
    this.picture = h("div", { class: "gx-models" }, ...this.panels.map((panel) => panel.node));
    if (this.about.sentences) {
      this.sentences = new Sentences(this.about, (message) => this.tried(message),
        (row) => this.load(row), (row) => this.worst(row));
    }
    this.root.replaceChildren(
      h("header", {}, h("h1", {}, this.about.title), h("p", { class: "gx-quiet" }, purpose)),
      h("section", { class: "gx-ask", "aria-label": "Sentence and gates" },
        ...fields.map(({ name, label }) => h("label", { class: "gx-label" },
          this.host.edits ? label : `${label} (read-only)`, this.texts[name])),
        this.origin, fixed, controls, this.status, this.notes),
      this.picture, ...(this.sentences ? [this.sentences.node] : []), ...(foot ? [foot] : []));
  }

  // ------------------------------------------------------------ what the person does

  change(changes, typed = false) {
    this.state = { ...this.state, ...changes };
    this.control(typed);
    this.refresh();
  }

  load(row) {
    this.know(row, `A sentence of ${this.sentences.found.name}.`);
    this.tokens = null;
    this.change({ text: row.text, forced: {}, off: [] });
    this.text.focus();
    this.root.scrollIntoView?.({ block: "start" });
  }

  // Offers the list of the labelled sentences that a pressed word decides.
  mention(word) {
    if (!this.sentences?.found) return;
    this.decided.hidden = false;
    this.decided.textContent = `Sentences that \u201c${word}\u201d decides`;
    this.decided.onclick = () => this.sentences.decide(word);
  }

  toggle(word, switched) {
    this.mention(word);
    if (!switched) return;
    const off = this.state.off.filter((other) => other !== word);
    this.change({ off: off.length < this.state.off.length ? off : [...off, word] });
  }

  press(i, free, word) {
    this.mention(word);
    const forced = { ...this.state.forced };
    const then = cycle(forced[i], free);
    if (then === undefined) delete forced[i];
    else forced[i] = then;
    this.change({ forced });
  }

  control(typed = false) {
    const { mode } = this.state;
    if (!typed) {
      for (const [name, area] of Object.entries(this.texts)) area.value = this.state[name];
    }
    this.mode.value = mode;
    for (const [name, slider] of Object.entries(this.sliders)) {
      slider.node.hidden = SETTING[mode] !== name;
      slider.input.value = this.state[name];
      slider.output.textContent = this.state[name].toFixed(2);
    }
    this.seeds.hidden = SETTING[mode] !== "seed";
    if (this.seed !== document.activeElement) this.seed.value = this.state.seed;
    const known = this.known.get(this.state.text);
    this.origin.replaceChildren(...(!known ? [] : [known.note,
      ...(known.label == null ? [] : [" Label: ", h("strong", {}, h("bdi", {}, known.label))])]));
    this.release.disabled = !Object.keys(this.state.forced).length;
    this.restore.disabled = !this.state.off.length;
    this.sentences?.mark(this.state);
  }

  // ------------------------------------------------------------ questions and answers

  refresh() {
    this.wanted += 1;
    this.root.dataset.state = "waiting";
    this.root.dataset.effects = "waiting";
    this.host.keep?.(this.state);
    if (!this.asking) this.asking = this.pump().finally(() => { this.asking = null; });
  }

  // One question at a time; an answer to an outdated question is dropped.
  async pump() {
    while (this.shown !== this.wanted) {
      const turn = this.wanted;
      const state = this.state;
      const slow = setTimeout(() => this.away
        || this.say("The model is being compiled for texts of this length \u2026"), PATIENCE);
      try {
        const answer = await this.patiently(() => this.host.ask({ do: "answer", ...state }));
        if (turn === this.wanted) this.show(answer, state);
      } catch (error) {
        this.fail(error);
      } finally {
        clearTimeout(slow);
      }
      this.shown = turn;
    }
    this.root.dataset.state = "ready";
    this.weigh();
  }

  // The effects of the words are requested after the answer, because the network then runs again
  // for each word. One request at a time; effects of an outdated state are dropped.
  async weigh() {
    if (this.weighing) return;
    this.weighing = true;
    try {
      while (this.weighed !== this.wanted && this.shown === this.wanted) {
        const turn = this.wanted;
        const has = this.about.models.some((about) => about.weighed);
        const { models } = !has ? { models: [] }
          : await this.patiently(() => this.host.ask({ do: "removal", ...this.state }));
        this.weighed = turn;
        if (turn === this.wanted) models.forEach((weights, k) => this.panels[k].weigh(weights));
      }
    } catch (error) {
      this.weighed = this.wanted;
      this.fail(error);
    } finally {
      this.weighing = false;
    }
    if (this.weighed === this.wanted) this.root.dataset.effects = "ready";
  }

  show(answer, state) {
    const before = this.tokens;
    // Gates are forced at the positions of words, which networks with gates share.
    const { models } = this.about;
    this.tokens = answer.models.find((one, k) => one && models[k].gated)?.tokens ?? [];
    if (before && state.text !== this.asked) {
      const forced = carry(before, this.tokens, state.forced);
      if (JSON.stringify(forced) !== JSON.stringify(state.forced)) {
        this.asked = state.text;
        this.change({ forced }, true);
        return;
      }
    }
    this.asked = state.text;
    this.say("");
    const notes = answer.notes.join(" ");
    if (this.notes.textContent !== notes) this.notes.textContent = notes;
    const label = this.known.get(state.text)?.label;
    // An emptied text takes all that was pressed with it.
    if (!answer.models.some(Boolean)) {
      this.decided.hidden = true;
      if (state.off.length) this.change({ off: [] }, true);
    }
    this.panels.forEach((panel, k) => panel.show(answer.models[k], state, label));
  }

  async patiently(ask) {
    for (;;) {
      try {
        const answer = await ask();
        if (this.away) {
          this.away = false;
          this.say("Connected again.");
          // The server may be a new process, which has not read the sentences.
          this.sentences?.start().catch(() => {});
        }
        return answer;
      } catch (error) {
        if (!(error instanceof Stopped)) throw error;
        this.away = true;
        this.say(error.message, true);
        await new Promise((resolve) => setTimeout(resolve, RETRY));
      }
    }
  }

  // Returns the answer; an error is shown and thrown again.
  async tried(message) {
    try {
      return await this.patiently(() => this.host.ask(message));
    } catch (error) {
      this.fail(error);
      throw error;
    }
  }

  fail(error) {
    this.say(error.message, true);
  }

  say(text, bad = false) {
    this.status ??= this.root.appendChild(h("p", { class: "gx-status", role: "status" }));
    if (this.status.textContent !== text) this.status.textContent = text;
    this.status.classList.toggle("gx-bad", bad);
  }

  // ------------------------------------------------------------ links and pictures

  async copy() {
    this.host.keep(this.state, true);
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("The link is copied.");
    } catch {
      this.say("The link is in the address bar.");
    }
  }

  save() {
    const text = new XMLSerializer().serializeToString(toSvg(this.picture));
    const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    h("a", { href: url, download: "gates.svg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    this.say("The picture is saved as gates.svg.");
  }
}

// The boxes and words of a part of the page, at the positions of the browser's layout.
export function toSvg(node) {
  // All words, including words outside of the visible area.
  node.classList.add("gx-whole");
  try {
    return drawn(node);
  } finally {
    node.classList.remove("gx-whole");
  }
}

function drawn(node) {
  const frame = node.getBoundingClientRect();
  const margin = 16;
  const [width, height] = [frame.width + 2 * margin, frame.height + 2 * margin];
  const back = getComputedStyle(node.closest(".gx")).backgroundColor;
  const picture = s("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` },
    s("rect", { width, height, fill: back }));
  const place = (box) => [box.left - frame.left + margin, box.top - frame.top + margin];
  const visit = (element) => {
    const { tagName, open } = element;
    if (tagName === "SELECT" || (tagName === "DETAILS" && !(open && element.matches(".gx-layers")))) {
      return;
    }
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (!box.width || style.visibility === "hidden") return;
    const [x, y] = place(box);
    const edge = element.classList.contains("gx-word") ? style.borderTopColor : "none";
    const clear = /^rgba\(.*, 0\)$|transparent/.test(style.backgroundColor);
    if (element !== node && (!clear || edge !== "none")) {
      picture.append(s("rect", { x, y, width: box.width, height: box.height,
        rx: Number.parseFloat(style.borderTopLeftRadius) || 0,
        "stroke-width": Number.parseFloat(style.borderTopWidth) || null,
        fill: clear ? "none" : style.backgroundColor, stroke: edge }));
    }
    for (const child of element.childNodes) {
      if (child.nodeType === Node.ELEMENT_NODE) visit(child);
      if (child.nodeType === Node.TEXT_NODE) write(child, style);
    }
  };
  const write = (child, style) => {
    for (const match of child.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(child, match.index);
      range.setEnd(child, match.index + match[0].length);
      const box = range.getBoundingClientRect();
      const [x, y] = place(box);
      // Characters that XML does not allow.
      const text = match[0].replace(/[\u0000-\u001f\ufffe\uffff]|\p{Surrogate}/gu, "\ufffd");
      const upright = style.writingMode.startsWith("vertical");
      const at = upright ? [x + box.width * 0.78, y + box.height] : [x, y + box.height * 0.78];
      picture.append(s("text", { x: at[0], y: at[1], fill: style.color,
        transform: upright ? `rotate(-90 ${at.join(" ")})` : null,
        "font-family": style.fontFamily, "font-size": style.fontSize,
        "font-weight": style.fontWeight,
        textLength: (upright ? box.height : box.width) || null,
        "text-decoration": style.textDecorationLine === "none" ? null : style.textDecorationLine,
      }, text));
    }
  };
  visit(node);
  return picture;
}

// ---------------------------------------------------------------- hosts

// The state is in the address, so that a copied address shows the same page.
function inAddress() {
  let timer = null;
  const keep = (state, now = false) => {
    clearTimeout(timer);
    const write = () => {
      try {
        history.replaceState(null, "", `#${toFragment(state)}`);
      } catch {
        location.hash = toFragment(state);
      }
    };
    if (now) write();
    else timer = setTimeout(write, 300);
  };
  return { keep, link: true, state: fromFragment(location.hash) };
}

export function serverHost() {
  const ask = async (message) => {
    let response;
    let answer;
    try {
      response = await fetch("ask", { method: "POST", cache: "no-store", credentials: "omit",
        headers: { "Content-Type": "application/json" }, body: JSON.stringify(message) });
      answer = await response.json();
    } catch {
      throw new Stopped("The server has stopped. Start it again; this page tries to reconnect.");
    }
    if (response.status === 403) {
      throw new Stopped("Another server is here now: open the address that it printed.");
    }
    if (!response.ok) throw new Error(answer.error);
    return answer;
  };
  return { ...inAddress(), ask, edits: true };
}

// A host without a server: `ask` answers from the data of the page, whose texts are read-only.
function offline(data, ask, fixed, texts) {
  const host = inAddress();
  const fix = (state) => ({ ...state, text: texts.includes(state.text) ? state.text : data.text,
    mode: data.about.modes.includes(state.mode) ? state.mode : START.mode });
  // The address of a file of this machine is of no use to another reader.
  const link = location.protocol.startsWith("http");
  return { ...host, ask, fix, fixed, link, state: fix(host.state), edits: false };
}

// The page has the answers for its texts, and the sentences that each word decides.
export function storedHost(data) {
  const rows = data.sentences?.rows ?? [];
  const ask = async (message) => {
    if (message.do === "about") return data.about;
    if (message.do === "sentences") return { ready: true, ...data.sentences };
    if (message.do === "word") {
      const word = message.word.toLowerCase();
      const has = rows.map((_, i) => i).filter((i) => data.answers[rows[i].text].models[0].lines[0]
        .tokens.some((token) => token.toLowerCase() === word));
      return { has, decided: Object.hasOwn(data.decided, word) ? data.decided[word] : [] };
    }
    return data.answers[message.text] ?? { notes: [], models: data.about.models.map(() => null) };
  };
  return offline(data, ask, "The texts of this page are read-only. The command gatedjax explore "
    + "reads other texts and can switch words off.", Object.keys(data.answers));
}

// The page has the results of all patterns of gates: only the pattern must be selected.
export function offlineHost(data) {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const models = data.models.map((model) => ({ ...model,
    ratios: new Float32Array(bytes(model.probabilities)),
    attention: model.attention && new Uint16Array(bytes(model.attention)),
    removed: model.removed && { open: model.removed.open,
      ratios: new Float32Array(bytes(model.removed.probabilities)) } }));
  const count = data.tokens.length;

  const pick = (open, { mode, threshold, density }) => {
    if (mode === "open") return open.map(() => true);
    if (mode === "threshold") return open.map((p) => p > threshold);
    const order = open.map((_, i) => i).sort((a, b) => open[b] - open[a] || a - b);
    const chosen = new Set(order.slice(0, Math.max(1, Math.floor(density * open.length + 0.5))));
    return open.map((_, i) => chosen.has(i));
  };

  const bits = (gates) => gates.reduce((sum, open, i) => sum + (open ? 2 ** i : 0), 0);

  // The probabilities of a row of ratios, the logarithms of p / p of the last class.
  const chances = (ratios, row, classes) => {
    const logits = [...ratios.slice(row * (classes - 1), (row + 1) * (classes - 1)), 0];
    const top = Math.max(...logits);
    const shares = logits.map((logit) => Math.exp(logit - top));
    const sum = shares.reduce((one, other) => one + other, 0);
    return shares.map((share) => share / sum);
  };
  const logOdds = (shares) => shares.map((p, c) => Math.log(Math.max(p, 1e-38))
    - Math.log(Math.max(shares.reduce((sum, other, d) => (d === c ? sum : sum + other), 0), 1e-38)));

  // The effects of the words, as `summarize_effects` of the library computes them.
  const removal = (model, about, state) => {
    const { removed } = model;
    if (!removed) return null;
    const before = answer(model, about, state).probabilities;
    const best = before.indexOf(Math.max(...before));
    const saturated = before[best] > 0.99;
    const unit = saturated ? logOdds : (shares) => shares;
    const changes = data.tokens.map((_, t) => {
      let row = t;
      if (about.gated) {
        const gates = pick(removed.open[t], state)
          .map((open, i) => state.forced[i < t ? i : i + 1] ?? open);
        row = t * 2 ** (count - 1) + bits(gates);
      }
      const without = unit(chances(removed.ratios, row, before.length));
      return unit(before).map((value, c) => value - without[c]);
    });
    return { class: best, unit: saturated ? "log-odds" : "probability", effects: changes.map((change) => change[best]),
      speaks_for: changes.map((change) =>
        (change[best] >= 0 ? best : change.indexOf(Math.max(...change)))) };
  };

  const answer = (model, about, state) => {
    const at = (pattern) => chances(model.ratios, pattern, about.classes.length);
    const shares = (pattern) => model.attention
      && [...model.attention.slice(pattern * count, (pattern + 1) * count)].map((a) => a / 65535);
    const same = { tokens: data.tokens, known: model.known, open: model.open, gates: null, free: null, rule: null };
    if (!about.gated) {
      return { ...same, read: model.read, share: model.share, probabilities: at(0),
        base: at(0), attention: shares(0) };
    }
    const free = pick(model.open, state);
    const wanted = free.map((open, i) => state.forced[i] ?? open);
    const none = !wanted.some(Boolean);
    const likeliest = model.open.indexOf(Math.max(...model.open));
    const read = wanted.map((open, i) =>
      open || (none && model.empty === "max_gate" && i === likeliest));
    return { ...same, read, free, gates: read.map(Number), rule: none ? model.empty : null,
      share: read.filter(Boolean).length / count, probabilities: at(bits(wanted)),
      base: at(bits(free)), attention: shares(bits(wanted)) };
  };

  const ask = async (message) => {
    if (message.do === "about") return data.about;
    if (message.do === "removal") {
      return { models: models.map((model, k) => removal(model, data.about.models[k], message)) };
    }
    return { notes: [],
      models: models.map((model, k) => answer(model, data.about.models[k], message)) };
  };
  return offline(data, ask, "The sentence of this page is read-only, because the page has the results "
    + "for all patterns of its gates. The command gatedjax explore shows other sentences.",
  [data.text]);
}

export function widgetHost(model) {
  const waiting = new Map();
  let last = 0;
  const receive = ({ id, answer, error }) => {
    const one = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) one?.resolve(answer);
    else one?.reject(new Error(error));
  };
  model.on("msg:custom", receive);
  const ask = (message) => new Promise((resolve, reject) => {
    last += 1;
    const id = `${last}`;
    waiting.set(id, { resolve, reject });
    model.send({ id, message });
  });
  const keep = (state) => {
    model.set("state", state);
    model.save_changes();
  };
  return { ask, keep, edits: true, link: false, state: { ...START, ...model.get("state") },
    end: () => model.off("msg:custom", receive) };
}

// Keeps JupyterLab from running its shortcuts, such as "x" for "cut the cell", for keys that are
// pressed in the page; only the shortcut that saves the notebook is left to it. The attribute must
// be on the focused element itself, because the selectors of JupyterLab end in ":focus". The
// listener is on the window, because that of JupyterLab is in the capture phase of the document.
function keepKeys(root) {
  const listen = (event) => {
    if (!root.contains(event.target)) return;
    const saves = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s";
    for (const node of [root, event.target]) {
      node.toggleAttribute("data-lm-suppress-shortcuts", !saves);
    }
  };
  window.addEventListener("keydown", listen, true);
  return () => window.removeEventListener("keydown", listen, true);
}

// The function that anywidget calls.
function render({ model, el }) {
  const host = widgetHost(model);
  // In an article the head and the foot of the page are not landmarks of the whole notebook.
  const root = el.appendChild(h("article", { "aria-label": "Explorer" }));
  const release = keepKeys(root);
  new Explorer(root, host).start();
  return () => {
    release();
    host.end();
  };
}

export default { render };

const root = document.querySelector("[data-gatedjax]");
if (root) {
  const data = root.dataset.gatedjax === "offline"
    && JSON.parse(document.getElementById("gatedjax-data").textContent);
  const host = !data ? serverHost() : data.answers ? storedHost(data) : offlineHost(data);
  const page = new Explorer(root, host);
  window.addEventListener("hashchange", () => {
    const state = fromFragment(location.hash);
    if (!page.about) return;
    page.tokens = null;
    page.change(host.fix ? host.fix(state) : state);
  });
  page.start().then(() => { document.title = `${page.about.title} \u2013 gatedjax`; })
    .catch((error) => page.fail(error));
}
