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
    this.tasks = data.tasks;
    this.marks = data.marks;
    this.colours = data.colours;
    this.document = documents[0];
    this.all = this.document.roots();
    this.source = this.document.get_model_by_name("arms");
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.paint());
    this.paint();
    if (!this.source) return;
    this.names = [...this.source.data.name];
    this.layer = this.figure("lines").below[0].axis_label;
    // the only checkpoint of each model, named by the model
    this.checkpoints = Object.entries(this.models).map(([model, { lines: [[prefix]] }]) => [prefix, model]);
    for (const name of ["model", "shown", "against"]) this.control(name)?.addEventListener("change", () => this.show());
    this.source.selected.properties.indices.change.connect(() => this.tell());
    for (const row of document.querySelectorAll("tr[data-arm]")) row.addEventListener("click", () => this.pick(row.dataset.arm));
    this.show();
  }

  control(name) { return document.getElementById(`choose-${name}`); }

  figure(name) { return this.all.find(figure => figure.name === name); }

  show() {
    const field = this.fields.get(this.control("shown").value);
    const { value, error } = this.columns(field);
    const against = this.control("against") && this.fields.get(this.control("against").value);
    this.source.data = {
      ...this.source.data, value, error,
      ...(against ? { against: this.columns(against).value } : {}),
    };
    this.label("comparison", "left", field.label);
    if (against) this.label("comparison", "below", against.label);
    const model = this.control("model")?.value ?? Object.keys(this.models)[0];
    if (this.figure("map")) this.map(field, model);
    const models = this.figure("map") ? [model] : Object.keys(this.models);
    this.lines(field, this.figure("map") ? this.models[model].lines : this.checkpoints, this.called(models));
  }

  called(models) {  // the names of layers by their numbers, if all of these models have the same
    const [first, ...others] = models.map(model => this.models[model].names);
    return new Map(others.every(names => JSON.stringify(names) === JSON.stringify(first)) ? first : []);
  }

  columns(field) {  // values and errors of all arms; NaN where there is none
    const { data } = this.source, value = data[`values of ${field.name}`];
    return { value, error: data[`errors of ${field.name}`] ?? new Float32Array(value.length).fill(NaN) };
  }

  label(name, side, text) {
    const axis = this.figure(name)?.[side][0];
    if (axis) axis.axis_label = text;
  }

  marked(field) { return this.marks[field.name] ?? this.marks[""]; }

  tied(field) {  // the names of those within the error of the best, and its own
    const { name = [], kind = [] } = this.marked(field) ?? {};
    return new Set(name.filter((_, i) => kind[i] !== "default"));
  }

  map(field, model) {
    const { value, error } = this.columns(field), marks = this.marked(field);
    const [low, high] = this.span(value, this.least(error), 0, Infinity) ?? [0, 1];
    this.document.get_model_by_name("colours").setv({ low, high });
    if (marks) this.document.get_model_by_name("marks").data = marks;
    const axes = this.models[model], map = this.figure("map"), filter = this.document.get_model_by_name("one");
    if (filter.group === model) return;
    filter.group = model;
    for (const [axis, labels] of [[map.below[0], axes.steps], [map.left[0], axes.layers]]) {
      axis.ticker.ticks = labels.map(([at]) => at);
      axis.major_label_overrides = new Map(labels);
    }
    this.range(map.x_range, axes.x);
    this.range(map.y_range, axes.y);
  }

  lines(field, checkpoints, called) {  // of a few checkpoints or models; or of all tasks of a single one, if scores are shown
    const together = checkpoints.length === 1 && field.group === "Scores" && !this.tasks.includes(field.name);
    const shades = this.colours, palette = this.document.get_model_by_name("colours")?.palette;
    const drawn = together
      ? this.tasks.map(name => [name, this.fields.get(name), checkpoints[0][0]])
      : checkpoints.map(([prefix, label]) => [label, field, prefix]);
    const points = { x: [], y: [], low: [], high: [], at: [], error: [], label: [], colour: [], size: [] };
    const whole = { xs: [], ys: [], label: [], colour: [], dash: [] };
    drawn.forEach(([label, shown, prefix], i) => {
      const { value, error } = this.columns(shown), { layer } = this.source.data, tied = this.tied(shown);
      const own = [...this.names.keys()].filter(at => this.names[at].startsWith(prefix) && !isNaN(value[at]));
      if (!own.length) return;
      const graded = drawn.length > 1 && !together && palette;
      const colour = graded ? palette[75 + Math.trunc(160 * i / (drawn.length - 1))] : shades[i % shades.length];
      own.sort((a, b) => layer[a] - layer[b]);
      for (const at of own) {
        const row = { x: layer[at], y: value[at], low: value[at] - error[at], high: value[at] + error[at],
                      at: called.get(layer[at]) ?? layer[at], error: error[at], label, colour, size: tied.has(this.names[at]) ? 9 : 4 };
        for (const [name, one] of Object.entries(row)) points[name].push(one);
      }
      const dash = graded || i < shades.length ? "solid" : "dashed";
      const line = { xs: own.map(at => layer[at]), ys: own.map(at => value[at]), label, colour, dash };
      for (const [name, one] of Object.entries(line)) whole[name].push(one);
    });
    const figure = this.figure("lines"), [curves, bars] = figure.renderers;
    curves.data_source.data = whole;
    bars.data_source.data = points;
    this.legend(figure, whole.label);
    figure.below[0].setv({ major_label_overrides: called, major_label_orientation: called.size ? 0.6 : "horizontal" });
    this.label("lines", "below", called.size ? "layer" : this.layer);
    this.label("lines", "left", together ? "score" : field.label);
    const are_scores = field.group === "Scores" && points.y.every(one => one <= 1), most = are_scores ? 1 : Infinity;
    const heights = [...points.y, ...points.low, ...points.high].map(one => Math.min(one, most));
    this.range(figure.x_range, this.span(points.x, 1, 0.03, Infinity));
    this.range(figure.y_range, this.span(heights, this.least(points.error), 0.12, most));
  }

  least(error) {  // what is smaller than some errors is not stretched
    const known = error.filter(one => !isNaN(one)).sort((a, b) => a - b);
    return 8 * (known[known.length >> 1] ?? 0);
  }

  legend(figure, labels) {  // in columns as wide as the longest label, below which the curves keep their room
    const longest = Math.max(...labels.map(label => label.length));
    const ncols = Math.min(3, Math.max(1, Math.trunc(60 / (longest + 4))));
    figure.above.find(part => part.type === "Legend").ncols = ncols;
    figure.height = 256 + 32 * Math.max(2, Math.ceil(labels.length / ncols));
  }

  span(values, least, margin, most) {
    const known = values.filter(one => !isNaN(one));
    if (!known.length) return null;
    const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
    const half = Math.max((0.5 + margin) * (high - low), least / 2) || 0.5, middle = (low + high) / 2;
    const above = Math.max(0, middle + half - most);
    return [middle - half - above, middle + half - above];
  }

  range(side, ends) {
    if (ends) side.setv({ start: ends[0], end: ends[1], reset_start: ends[0], reset_end: ends[1] });
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
    const [text, soft, line] = ["--text", "--soft", "--line"].map(name => style.getPropertyValue(name).trim());
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
    if (colours) colours.nan_color = line;
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
