"use strict";
/* The page's own script: tables that sort, and figures whose model and quantities a reader chooses.
   It loads nothing, stores nothing, and evaluates no text as code: the page's policy would refuse that. */

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.ariaSort === "descending" || (!head.ariaSort && !head.classList.contains("score"));
      for (const each of heads) each.ariaSort = null;
      head.ariaSort = up ? "ascending" : "descending";
      order(table.tBodies[0], column, up ? 1 : -1);
    });
  });
}

function order(body, column, sign) {
  const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const missing = text => text === "";
  const compare = (a, b) => a.localeCompare(b, "en", { numeric: true });
  const numbers = (a, b) => (isNaN(a) || isNaN(b) ? compare(a, b) : a - b);
  const rows = [...body.rows].map(row => [key(row), row]);
  // rows without a value stay last, whatever the order
  rows.sort(([a], [b]) => missing(a) - missing(b) || sign * numbers(a, b));
  body.append(...rows.map(([, row]) => row));
}

class Figures {
  constructor(data, documents) {
    this.fields = new Map(data.fields.map(field => [field.name, field]));
    this.models = data.models;
    this.document = documents[0];
    this.all = this.document.roots();
    this.source = this.document.get_model_by_name("arms");
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.paint());
    this.paint();
    if (!this.source) return;
    this.names = [...this.source.data.name];
    for (const name of ["model", "shown", "against"]) this.control(name)?.addEventListener("change", () => this.show());
    this.source.selected.properties.indices.change.connect(() => this.tell());
    for (const row of document.querySelectorAll("tr[data-arm]")) row.addEventListener("click", () => this.pick(row.dataset.arm));
  }

  control(name) { return document.getElementById(`choose-${name}`); }

  figure(name) { return this.all.find(figure => figure.name === name); }

  show() {
    const field = this.fields.get(this.control("shown").value);
    const { value, error } = this.columns(field);
    const against = this.control("against") && this.fields.get(this.control("against").value);
    this.source.data = {
      ...this.source.data, value, error,
      low: value.map((v, i) => v - error[i]), high: value.map((v, i) => v + error[i]),
      ...(against ? { against: this.columns(against).value } : {}),
    };
    for (const name of ["lines", "points", "comparison"]) this.label(name, "left", field.label);
    if (against) this.label("comparison", "below", against.label);
    if (this.figure("map")) this.map(value);
  }

  columns(field) {  // values and errors of all arms; NaN where there is none
    const [value, error] = ["v", "e"].map(which => {
      const all = new Float32Array(this.names.length).fill(NaN);
      (field[which] ?? []).forEach((one, i) => { all[field.i ? field.i[i] : i] = one ?? NaN; });
      return all;
    });
    return { value, error };
  }

  label(name, side, text) {
    const axis = this.figure(name)?.[side][0];
    if (axis) axis.axis_label = text;
  }

  map(value) {
    const known = value.filter(one => !isNaN(one));
    const [low, high] = known.length ? [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))] : [0, 1];
    this.document.get_model_by_name("colours").setv(low < high ? { low, high } : { low: low - 0.5, high: high + 0.5 });
    const model = this.control("model")?.value ?? Object.keys(this.models)[0];
    const axes = this.models[model], map = this.figure("map"), filter = this.document.get_model_by_name("one");
    if (filter.group !== model) {
      filter.group = model;
      map.below[0].ticker.ticks = axes.steps.map(([at]) => at);
      map.below[0].major_label_overrides = new Map(axes.steps);
      map.left[0].ticker.ticks = axes.layers;
      for (const [range, [start, end]] of [[map.x_range, axes.x], [map.y_range, axes.y]])
        range.setv({ start, end, reset_start: start, reset_end: end });
    }
    this.lines(axes.lines);
  }

  lines(wanted) {
    const { value, layer } = this.source.data, source = this.document.get_model_by_name("line-data");
    const own = wanted.map(([prefix]) => [...this.names.keys()].filter(i => this.names[i].startsWith(prefix) && !isNaN(value[i])));
    const palette = this.document.get_model_by_name("colours").palette;
    source.data = {
      xs: own.map(each => each.map(i => layer[i])), ys: own.map(each => each.map(i => value[i])),
      label: wanted.map(([, label]) => label),
      colour: wanted.map((_, i) => palette[75 + Math.trunc(160 * i / Math.max(1, wanted.length - 1))]),
    };
  }

  pick(name) {
    const at = this.names.indexOf(name), model = this.control("model");
    if (at < 0) return;
    if (model && model.value !== this.source.data.model[at]) { model.value = this.source.data.model[at]; this.show(); }
    const same = this.source.selected.indices.length === 1 && this.source.selected.indices[0] === at;
    this.source.selected.indices = same ? [] : [at];
  }

  tell() {
    const chosen = this.source.selected.indices.map(i => this.names[i]), own = new Set(chosen);
    const more = chosen.length > 3 ? ` and ${chosen.length - 3} more` : "";
    document.getElementById("selected").textContent = chosen.length ? `Selected: ${chosen.slice(0, 3).join(", ")}${more}.` : "";
    for (const row of document.querySelectorAll("tr[data-arm]")) row.classList.toggle("chosen", own.has(row.dataset.arm));
  }

  paint() {  // in the colours of the page, light or dark
    const style = getComputedStyle(document.documentElement);
    const [text, soft, line, card] = ["--text", "--soft", "--line", "--card"].map(name => style.getPropertyValue(name).trim());
    for (const figure of this.all) {
      for (const part of [...figure.left, ...figure.below, ...figure.right, ...figure.above, ...figure.center]) {
        if (part.type.endsWith("Axis"))
          part.setv({ axis_label_text_color: text, major_label_text_color: soft, axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: null });
        if (part.type === "Grid") part.grid_line_color = line;
        if (part.type === "Legend") part.label_text_color = text;
        if (part.type === "ColorBar") part.setv({ major_label_text_color: soft, major_tick_line_color: null });
      }
    }
    const colours = this.document.get_model_by_name("colours");
    if (colours) colours.nan_color = card;
  }
}

async function start() {
  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  const stored = document.getElementById("figures-data");
  if (!stored) return;
  Bokeh.set_log_level("warn");
  const data = JSON.parse(stored.textContent);
  for (const each of document.querySelectorAll(".interactive")) each.hidden = false;
  await Bokeh.embed.embed_items(data.documents, [data.item]);
  window.figures = new Figures(data, Bokeh.documents);
  document.documentElement.dataset.drawn = "";
}

start();
