// SPDX-License-Identifier: BSD-3-Clause
// The console of varve: six views over /api/. Texts come from hosts and operators, so they become text nodes and never markup.
"use strict";

const PERIOD_MS = 2000;
const PATIENCE_MS = 5000;
const ROWS = 100;
const MAP_ROWS = 24;
const LOOK_MS = 200;
const LOOKS = 15;
const OLD_US = 1500000;
const TYPING_MS = 300;
const SVG = "http://www.w3.org/2000/svg";
const FIGURES = [
  ["iops", "I/O per second", count], ["bytes_per_s", "Throughput", bytes], ["p99_ns", "99th percentile of latency", time, "p50_ns", "median"],
  ["depth_milli", "In flight", depth],
];
const KINDS = { bdev: "Bdevs", host: "Hosts", subsystem: "Subsystems", path: "Paths" };
const view = { span: "minutes", kind: "bdev", sort: "iops", down: true, filter: "", chosen: null, subsystem: 0, group: "", text: "", life: null, paused: false, kept: null };
let shown = 0;
let busy = 0;
let held = false;
let typing = 0;

// ---- Texts ----

function scaled(value, base, units) {
  let i = 0;
  while (value >= base && i < units.length - 1) { value /= base; i++; }
  return [value >= 100 || (i === 0 && Number.isInteger(value)) ? Math.round(value).toString() : value.toFixed(value >= 10 ? 1 : 2), units[i]];
}
function count(v) { return v === null ? ["–", ""] : scaled(v, 1000, ["", "k", "M", "G"]); }
function bytes(v) { return v === null ? ["–", ""] : scaled(v, 1024, ["B/s", "KiB/s", "MiB/s", "GiB/s"]); }
function size(v) { return scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]).join(" "); }
function time(v) { return v === null ? ["–", ""] : scaled(v, 1000, ["ns", "µs", "ms", "s"]); }
function depth(v) { return v === null ? ["–", ""] : [(v / 1000).toFixed(v < 10000 && v % 1000 ? 1 : 0), ""]; }
function since(us) {
  const s = us / 1e6;
  return s < 1 ? time(us * 1000).join(" ") : s < 120 ? `${s.toFixed(s < 10 ? 1 : 0)} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}
function plural(n, one, many) { return `${n} ${n === 1 ? one : many}`; }

// ---- Elements ----

function fill(e, attributes, children) {
  for (const [k, v] of Object.entries(attributes)) {
    if (k === "onclick" || k === "oninput" || k === "onchange") e.addEventListener(k.slice(2), v);
    else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  for (const c of children.flat()) if (c !== null && c !== undefined) e.append(c);
  return e;
}
function el(name, attributes = {}, ...children) { return fill(document.createElement(name), attributes, children); }
function svg(name, attributes = {}, ...children) { return fill(document.createElementNS(SVG, name), attributes, children); }
const $ = (id) => document.getElementById(id);

async function ask(path) {
  const answer = await fetch(`/api/${path}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

// ---- Charts ----

// The points as paths; a gap where there is no figure.
function trace(values, max, width, height) {
  let d = "", pen = false;
  values.forEach((v, i) => {
    if (v === null) { pen = false; return; }
    d += `${pen ? "L" : "M"}${(width * (i + 0.5) / values.length).toFixed(1)} ${(height - height * v / max).toFixed(1)}`;
    pen = true;
  });
  return d;
}
function area(values, max, width, height) {
  let d = "", from = -1;
  const x = (i) => (width * (i + 0.5) / values.length).toFixed(1);
  for (let i = 0; i <= values.length; i++) {
    const there = i < values.length && values[i] !== null;
    if (there && from < 0) { from = i; d += `M${x(i)} ${height}`; }
    if (there) d += `L${x(i)} ${(height - height * values[i] / max).toFixed(1)}`;
    if (!there && from >= 0) { d += `L${x(i - 1)} ${height}Z`; from = -1; }
  }
  return d;
}
function pad(values, n) { return values.length < n ? Array(n - values.length).fill(null).concat(values) : values; }

function chart(history, [key, title, text, second, secondName]) {
  const n = history.span_s / history.step_s, values = pad(history[key], n), more = second ? pad(history[second], n) : null;
  const known = values.filter((v) => v !== null), max = Math.max(1, ...known, ...(more || []).filter((v) => v !== null));
  const [number, unit] = text(values[n - 1]);
  const w = 600, h = 92;
  return el("div", { class: "card" },
    el("h3", {}, title),
    el("div", { class: "figure" }, number, " ", el("small", {}, unit, second ? ` · ${secondName} ${text(more[n - 1]).join(" ")}` : "")),
    svg("svg", { class: "chart", viewBox: `0 -2 ${w} ${h + 4}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${title}: now ${number} ${unit}, at most ${text(known.length ? Math.max(...known) : null).join(" ")}` },
    [0, 0.5, 1].map((y) => svg("line", { class: "grid", x1: 0, x2: w, y1: h * y, y2: h * y })),
    svg("path", { class: "area", d: area(values, max, w, h) }), svg("path", { class: "line", d: trace(values, max, w, h) }),
    more ? svg("path", { class: "line second", d: trace(more, max, w, h) }) : null),
    el("div", { class: "axis" }, el("span", {}, history.span_s > 240 ? "1 h ago" : "4 min ago"), el("span", {}, `top ${text(max).join(" ")}`), el("span", {}, "now")));
}

// The hour by the second is kept of the node only; elsewhere the hour stands for it.
const SPANS = { minutes: ["4 minutes", "minutes"], hour: ["1 hour", "hour"], seconds: ["1 hour by the second", "hour&step=1"] };
function spanOf(kind) { return kind !== "node" && view.span === "seconds" ? "hour" : view.span; }
function spans(kind) {
  return Object.entries(SPANS).filter(([span]) => kind === "node" || span !== "seconds").map(([span, [text]]) =>
    el("button", { type: "button", id: `span-${span}`, "aria-pressed": String(spanOf(kind) === span), onclick: () => { view.span = span; show(); } }, text));
}
async function charts(kind, name) {
  const history = await ask(`history?kind=${kind}&name=${encodeURIComponent(name)}&span=${SPANS[spanOf(kind)][1]}`);
  return el("div", { class: "tiles" }, FIGURES.map((f) => chart(history, f)));
}

// ---- Views: each answers with elements ----

function findings(list) {
  return el("section", {}, el("h2", {}, "Health"), el("div", { class: "card" }, list.length === 0
    ? el("p", { class: "findings", id: "well" }, "Nothing is wrong as far as the daemon knows. varve-doctor looks closer.")
    : el("ul", { class: "findings" }, list.map((f) => el("li", {}, el("strong", { class: f.severity }, f.severity), el("span", {}, f.text), el("code", {}, f.next))))));
}
async function overview(state) {
  const c = state.counts;
  const figures = await charts("node", "").catch(() => el("p", { class: "quiet" }, "The first figures come in a second."));
  return [findings(state.findings),
    el("section", {}, el("h2", {}, "Commands of hosts"), el("div", { class: "tools" }, spans("node")), figures),
    el("section", {}, el("h2", {}, "What there is"), el("div", { class: "card" },
      [plural(c.subsystems, "subsystem", "subsystems"), plural(c.namespaces, "namespace", "namespaces"), plural(c.controllers, "controller", "controllers"),
        plural(c.bdevs, "bdev", "bdevs")].join(", ")))];
}

function header(key, title) {
  const on = view.sort === key;
  return el("th", { class: key === "name" ? "" : "number", scope: "col", "aria-sort": on ? (view.down ? "descending" : "ascending") : null },
    el("button", { type: "button", id: `sort-${key}`, onclick: () => { view.down = on ? !view.down : key !== "name"; view.sort = key; show(); } },
      title, on ? (view.down ? " ↓" : " ↑") : ""));
}
function compare(a, b) {
  const x = a[view.sort], y = b[view.sort];
  const order = view.sort === "name" ? x.localeCompare(y) : (x === null ? -1 : x) - (y === null ? -1 : y);
  return (view.down ? -order : order) || a.name.localeCompare(b.name);
}
function table(label, head, rows) {
  return el("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
}
async function load() {
  const answer = await ask(`series?kind=${view.kind}`);
  const chosen = view.chosen && answer.series.some((s) => s.name === view.chosen) ? view.chosen : null;
  const found = answer.series.filter((s) => s.name.toLowerCase().includes(view.filter.toLowerCase())).sort(compare);
  const rows = found.slice(0, ROWS).map((s) => el("tr", {},
    el("td", { class: "name" }, el("button", { type: "button", onclick: () => { view.chosen = s.name; show(); } }, s.name)),
    [["iops", count], ["bytes_per_s", bytes], ["p50_ns", time], ["p99_ns", time], ["depth_milli", depth]].map(([k, text]) =>
      el("td", { class: "number" }, text(s[k]).join(" ")))));
  return [
    el("div", { class: "tools" }, Object.entries(KINDS).map(([kind, title]) => el("button", { type: "button", id: `kind-${kind}`, "aria-pressed": String(view.kind === kind),
      onclick: () => { view.kind = kind; view.chosen = null; show(); } }, title)),
    el("input", { type: "search", id: "filter", "aria-label": "Filter by name", placeholder: "Filter by name", value: view.filter,
      oninput: (e) => { view.filter = e.target.value; show(); } })),
    chosen ? el("section", { id: "detail" }, el("div", { class: "tools" }, el("h2", {}, chosen), spans(view.kind),
      el("button", { type: "button", id: "close", onclick: () => { view.chosen = null; show(); } }, "Close")), await charts(view.kind, chosen)) : null,
    table(KINDS[view.kind], [header("name", "Name"), header("iops", "I/O per s"), header("bytes_per_s", "Throughput"), header("p50_ns", "Median"), header("p99_ns", "p99"),
      header("depth_milli", "In flight")], rows),
    el("p", { class: "quiet" }, found.length > ROWS ? `${ROWS} of ${found.length} are shown: filter or sort to see others.` : plural(found.length, "row", "rows"),
      answer.left_out ? `; ${answer.left_out} more have no history` : ""),
  ];
}

// ---- Topology ----

function cut(text, n) { return text.length > n ? `${text.slice(0, n / 2 - 1)}…${text.slice(-n / 2)}` : text; }
function busiest(names, loads) {
  const list = [...names].map((n) => ({ name: n, iops: loads.get(n) || 0 })).sort((a, b) => b.iops - a.iops || a.name.localeCompare(b.name));
  return { rows: list.slice(0, MAP_ROWS), rest: Math.max(0, list.length - MAP_ROWS) };
}
async function loads(kind) {
  return new Map((await ask(`series?kind=${kind}`)).series.map((s) => [s.name, s.iops || 0]));
}
function baseOf(bdevs, name) { return (bdevs.get(name) || { bases: [] }).bases; }

function column(map, x, title, part, describe) {
  const places = new Map();
  map.append(svg("text", { class: "kind", x, y: 14 }, title));
  part.rows.forEach((r, i) => {
    const y = 26 + i * 48;
    places.set(r.name, { x, y: y + 18 });
    map.append(svg("g", {}, svg("title", {}, r.name), svg("rect", { x, y, width: 216, height: 38, class: `${r.iops > 0 ? "busy" : ""} ${r.ill ? "ill" : ""}` }),
      svg("text", { x: x + 10, y: y + 16 }, cut(r.name, 30)), svg("text", { class: "load", x: x + 10, y: y + 31 }, describe(r))));
  });
  if (part.rest) map.append(svg("text", { class: "load", x, y: 40 + part.rows.length * 48 }, `and ${part.rest} with less load`));
  return places;
}
function wires(map, from, to, pairs) {
  for (const [a, b, busy] of pairs) {
    const p = from.get(a), q = to.get(b);
    if (p && q) map.prepend(svg("path", { class: busy ? "busy" : "", d: `M${p.x + 216} ${p.y}C${p.x + 248} ${p.y} ${q.x - 32} ${q.y} ${q.x} ${q.y}` }));
  }
}
async function topology() {
  const t = await ask("topology");
  if (t.subsystems.length === 0 && t.bdevs.length === 0) return [el("p", { class: "card" }, "There are no bdevs and no subsystems. varve-ctl serve FILE makes both.")];
  const [hostLoad, pathLoad, bdevLoad] = await Promise.all([loads("host"), loads("path"), loads("bdev")]);
  const subsystems = view.subsystem === 0 ? t.subsystems : t.subsystems.filter((s, i) => i + 1 === view.subsystem);
  const bdevs = new Map(t.bdevs.map((b) => [b.name, b]));
  const ill = new Map(subsystems.map((s) => [s.nqn, s.state !== "ACTIVE"]));
  const ways = subsystems.flatMap((s) => [...new Set(s.controllers.map((c) => c.host))].map((host) => [host, s.nqn, (pathLoad.get(`${host} ${s.nqn}`) || 0) > 0]));
  const served = subsystems.flatMap((s) => s.namespaces.map((n) => [s.nqn, n.bdev, (bdevLoad.get(n.bdev) || 0) > 0]));
  const top = new Set(served.map((x) => x[1]));
  if (view.subsystem === 0) t.bdevs.forEach((b) => { if (!t.bdevs.some((o) => o.bases.includes(b.name))) top.add(b.name); });
  const under = new Set(), stands = [];
  const walk = (name) => baseOf(bdevs, name).forEach((b) => { stands.push([name, b, (bdevLoad.get(b) || 0) > 0]); if (!under.has(b)) { under.add(b); walk(b); } });
  top.forEach(walk);
  const subsystemLoad = new Map();
  ways.forEach(([h, s]) => subsystemLoad.set(s, (subsystemLoad.get(s) || 0) + (pathLoad.get(`${h} ${s}`) || 0)));
  const columns = [busiest(new Set(ways.map((w) => w[0])), hostLoad), busiest(subsystems.map((s) => s.nqn), subsystemLoad), busiest(top, bdevLoad), busiest(under, bdevLoad)];
  columns[1].rows.forEach((r) => { r.ill = ill.get(r.name); });
  const height = 60 + 48 * Math.max(1, ...columns.map((c) => c.rows.length));
  const map = svg("svg", { class: "map", width: 1110, height, viewBox: `0 0 1110 ${height}`, role: "img", "aria-label":
    `${plural(columns[0].rows.length + columns[0].rest, "host", "hosts")}, ${plural(subsystems.length, "subsystem", "subsystems")}, ${plural(top.size, "bdev", "bdevs")} on ${under.size} others` });
  const rate = (r) => `${count(r.iops).join(" ")} I/O per s`;
  const state = new Map(subsystems.map((s) => [s.nqn, s.state.toLowerCase()]));
  const of = (r) => { const b = bdevs.get(r.name); return b ? `${cut(b.product, 12)}, ${size(b.bytes)}, ${count(r.iops).join(" ")} per s` : rate(r); };
  const places = [column(map, 2, "Hosts", columns[0], rate), column(map, 296, "Subsystems", columns[1], (r) => `${state.get(r.name)}, ${rate(r)}`),
    column(map, 590, "Namespaces and bdevs", columns[2], of), column(map, 884, "Bdevs and drives below", columns[3], of)];
  wires(map, places[0], places[1], ways);
  wires(map, places[1], places[2], served);
  wires(map, places[2], places[3], stands);
  const choice = el("select", { id: "subsystem", "aria-label": "Subsystem", onchange: (e) => { view.subsystem = Number(e.target.value); show(); } },
    el("option", { value: 0 }, "All subsystems"), t.subsystems.map((s, i) => el("option", { value: i + 1, selected: view.subsystem === i + 1 }, cut(s.nqn, 60))));
  return [el("div", { class: "tools" }, choice, el("span", { class: "quiet" }, "The busiest are shown first; busy ones are tinted.")),
    el("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": "Topology" }, map)];
}

async function inflight() {
  const a = await ask("inflight");
  const cells = (c) => [el("td", { class: `number ${c.age_us > 1e6 ? "late" : ""}` }, since(c.age_us)), el("td", {}, c.state, " ", el("span", { class: "quiet" }, since(c.state_us))),
    el("td", {}, c.waits_for || "–"), el("td", {}, c.command || "?"), el("td", { class: "name" }, c.host), el("td", { class: "name" }, c.bdev || "–"),
    el("td", { class: "number" }, c.nsid), el("td", { class: "number" }, c.lba), el("td", { class: "number" }, `${c.qid}/${c.cid}`)];
  return [el("h2", {}, "Commands under way, the oldest first"), a.commands.length === 0 ? el("p", { class: "card", id: "none" }, "No command is under way.")
    : table("Commands under way", ["Age", "State", "Waits for", "Command", "Host", "Bdev", "Namespace", "LBA", "Queue/id"].map((t, i) =>
      el("th", { scope: "col", class: [0, 6, 7, 8].includes(i) ? "number" : "" }, t)), a.commands.map((c) => el("tr", {}, cells(c)))),
  el("p", { class: "quiet" }, a.commands.length >= a.max ? `At most ${a.max} are shown. ` : "", "All of them: ", el("code", {}, "varve-rpc nvmf_get_inflight"))];
}

// The names are the daemon's own; the browser asks for one by its name and gets the file.
function copies(answer) {
  const rows = answer.copies.map((c) => el("tr", {}, el("td", { class: "name" }, answer.offered ? el("a", { href: `/api/copy?name=${encodeURIComponent(c.name)}`, download: c.name }, c.name) : c.name),
    el("td", { class: "number" }, size(c.bytes)), el("td", {}, c.time), el("td", {}, c.cause)));
  const none = answer.error ? [el("code", {}, answer.directory), ` cannot be read: ${answer.error}.`] : ["There are no copies in ", el("code", {}, answer.directory), "."];
  return el("section", { id: "copies" }, el("h2", {}, "Copies"), rows.length === 0 ? el("p", { class: "card" }, none)
    : table("Copies", ["Name", "Size", "Time", "Cause"].map((t, i) => el("th", { scope: "col", class: i === 1 ? "number" : "" }, t)), rows),
  answer.complete || answer.error ? null : el("p", { class: "quiet" }, "The folder has so many entries that not all were looked at: copies may be missing here."),
  answer.offered ? null : el("p", { class: "quiet" }, "They are in ", el("code", {}, answer.directory), ". This page hands them out after ",
    el("code", {}, "varve-rpc metrics_stop; varve-rpc metrics_start address=unix:PATH copies=true")));
}
async function blackbox(state) {
  const kept = await ask("copies");
  const rows = state.triggers.map((t) => el("tr", {}, el("td", { class: "name" }, t.name), el("td", {}, t.type), el("td", { class: "number" }, t.fired),
    el("td", {}, t.ago_us === null ? "never" : `${since(t.ago_us)} ago`), el("td", { class: "name" }, t.cause || "–"),
    el("td", { class: "name" }, t.file ? el("code", {}, `varve-trace -f ${t.file} --html page.html`) : "–")));
  return [el("h2", {}, "Black box"), rows.length === 0
    ? el("p", { class: "card" }, "There are no triggers. ", el("code", {}, "varve-rpc trace_set_trigger name=slow type=request_age limit_us=1000000"), " keeps the trace when a command takes longer than a second.")
    : table("Triggers", ["Trigger", "Type", "Fired", "Last", "Cause", "Open its copy"].map((t, i) => el("th", { scope: "col", class: i === 2 ? "number" : "" }, t)), rows),
  copies(kept),
  el("section", {}, el("h2", {}, "Now"), el("div", { class: "card" }, el("p", {}, "What the recorder holds now, as a page: "),
    el("code", {}, `varve-trace -p ${state.pid} --html page.html`), ", or ", el("a", { href: "#trace" }, "the last of it here"), "."))];
}

// ---- The trace ----

// A worker thread of the daemon looks; the answer is asked for until it has, or until nobody wants it any more.
async function look(query, wanted) {
  for (let i = 0; ; i++) {
    const answer = await ask(`trace?${query}`);
    if ((answer.state !== "pending" && answer.state !== "busy") || i === LOOKS || !wanted()) return answer;
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}
function clock(us) {
  if (us === null) return "–";
  const t = new Date(us / 1000), two = (n) => String(n).padStart(2, "0");
  return `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}.${String(us % 1000000).padStart(6, "0")}`;
}
// from: the time that the others are counted from, in a life; null: the list of all.
function events(label, list, from, all) {
  const cells = (e) => [el("td", { class: "number" }, from === null ? clock(e.time_us) : time(e.at_ns - from).join(" ")), el("td", {}, e.thread),
    el("td", { class: "name" }, e.owner || "–"), el("td", {}, e.tpoint),
    el("td", {}, from === null && e.family !== null ? el("button", { type: "button", title: "Show its life",
      onclick: () => { view.life = { name: e.object || e.parent, events: all.filter((o) => o.family === e.family) }; show(); } }, e.object || e.parent) : e.object || "–",
    e.object && e.parent ? ` (${e.parent})` : ""),
    el("td", { class: "number" }, e.since_ns === null ? "–" : time(e.since_ns).join(" ")), el("td", { class: "number" }, e.size || "–"), el("td", { class: "name" }, e.args || "–")];
  return table(label, [from === null ? "Time" : "After", "Thread", "Owner", "Tracepoint", "Object", "Since its last", "Size", "Arguments"].map((t, i) =>
    el("th", { scope: "col", class: [0, 5, 6].includes(i) ? "number" : "" }, t)), list.map((e) => el("tr", {}, cells(e))));
}
// The events of a life came with the event that was chosen: later the recorder may have overwritten them.
function life() {
  const chosen = view.life;
  if (chosen === null) return null;
  return el("section", { id: "life" }, el("div", { class: "tools" }, el("h2", {}, `The life of ${chosen.name}, and of what belongs to it`),
    el("button", { type: "button", id: "close", onclick: () => { view.life = null; show(); } }, "Close")), events("Its life", chosen.events, chosen.events[0].at_ns));
}
const TRACE_STATES = { off: "The recorder is off: varve was started without it.", busy: "Too many look at the trace in different ways: wait a moment.", pending: "The daemon has not come to it yet." };
// What is under way is for another choice. Who types wants what is there at the end.
function choose(chosen, delay_ms) {
  Object.assign(view, chosen, { kept: null });
  shown++;
  clearTimeout(typing);
  typing = setTimeout(show, delay_ms);
}
function groups(answer) {
  return el("select", { id: "group", disabled: view.paused, "aria-label": "Group of tracepoints", onchange: (e) => choose({ group: e.target.value }, 0) }, el("option", { value: "" }, "All groups"),
    answer.groups.map((g) => el("option", { value: g.name, selected: view.group === g.name }, g.on ? `${g.name}, on` : g.name)));
}
// What is kept while paused is of the group and the text that were chosen before: others cannot be chosen meanwhile.
async function live(state, wanted) {
  const answer = view.paused && view.kept ? view.kept : await look(`group=${encodeURIComponent(view.group)}&text=${encodeURIComponent(view.text)}`, wanted);
  if (!wanted()) return [];
  if (answer.state === "done") view.kept = answer;
  const list = (answer.events || []).filter((e) => e.shown).reverse(), on = answer.groups.some((g) => g.on);
  const none = TRACE_STATES[answer.state] || answer.error || (on ? "Nothing of that was recorded lately." : "No tracepoint is enabled.");
  return [el("h2", {}, "Trace, the newest first"),
    el("div", { class: "tools" }, groups(answer),
      el("input", { type: "search", id: "filter", disabled: view.paused, maxlength: 20, "aria-label": "Filter by owner, tracepoint, object or thread", placeholder: "Bdev, tracepoint, object ...", value: view.text,
        oninput: (e) => choose({ text: e.target.value }, TYPING_MS) }),
      el("button", { type: "button", id: "pause", "aria-pressed": String(view.paused), onclick: () => { view.paused = !view.paused; show(); } }, "Pause")),
    on ? null : el("p", { class: "quiet" }, "To record: ", el("code", {}, "varve-rpc trace_enable_tpoint_group name=bdev")),
    life(),
    list.length === 0 ? el("p", { class: "card", id: "none" }, none) : events("Trace", list, null, answer.events),
    el("p", { class: "quiet" }, answer.matching > list.length ? `The newest ${list.length} of ${answer.matching} events are shown, of` : "Of",
      ` the newest ${answer.entries || 0} entries of each thread${answer.ago_us > OLD_US && !view.paused ? `, ${since(answer.ago_us)} ago` : ""}. As they come: `, el("code", {}, "varve-trace -F"))];
}

const VIEWS = { overview: ["Overview", overview], load: ["Load", load], topology: ["Topology", topology], inflight: ["In flight", inflight], trace: ["Trace", live],
  blackbox: ["Black box", blackbox] };

// ---- The page ----

function current() { const name = location.hash.slice(1); return Object.hasOwn(VIEWS, name) ? name : "overview"; }

function lamp(kind, text) {
  if ($("lamp-text").textContent !== text) $("lamp-text").textContent = text;
  $("lamp").className = kind;
}
function head(state) {
  const worst = ["error", "warning"].find((s) => state.findings.some((f) => f.severity === s));
  $("where").textContent = `${state.host}, process ${state.pid}`;
  lamp(worst || "good", worst ? plural(state.findings.filter((f) => f.severity === worst).length, worst, `${worst}s`) : "well");
  $("about").textContent = `varve ${state.version}, ${state.state.toLowerCase()} for ${since(state.age_us)}. Read-only; figures of the last second.`;
}
function navigate() {
  $("nav").replaceChildren(...Object.entries(VIEWS).map(([name, [title]]) =>
    el("li", {}, el("a", { href: `#${name}`, "aria-current": current() === name ? "page" : null }, title))));
}

// Puts new elements in place, and the focus, the cursor and the scrolling back where they were.
function replace(children) {
  const main = $("main"), active = document.activeElement, inside = main.contains(active);
  const path = inside && !active.id ? [...main.querySelectorAll("button, [tabindex]")].indexOf(active) : -1;
  const cursor = inside && active.id === "filter" ? active.selectionStart : null;
  const scrolled = [...main.querySelectorAll(".scroll")].map((e) => [e.scrollLeft, e.scrollTop]);
  main.replaceChildren(...children.filter((c) => c !== null));
  main.querySelectorAll(".scroll").forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
  const again = inside ? (active.id && $(active.id)) || main.querySelectorAll("button, [tabindex]")[path] : null;
  if (again) again.focus({ preventScroll: true });
  if (again && cursor !== null) again.setSelectionRange(cursor, cursor);
}

// Nobody is about to click, to choose or to copy what would be taken away.
function isQuiet() { return !held && getSelection().isCollapsed && (!document.activeElement || document.activeElement.tagName !== "SELECT"); }

// The lamp tells the truth also while the rest stays as it is.
async function show(periodic = false) {
  if (periodic && busy) return;
  const turn = ++shown, stays = () => turn !== shown || (periodic && !isQuiet());
  busy++;
  try {
    const state = await ask("state");
    if (turn === shown) head(state);
    if (stays()) return;
    const children = await VIEWS[current()][1](state, () => turn === shown);
    if (stays()) return;
    replace(children);
    document.body.dataset.view = current();
  } catch (e) {
    if (turn === shown) lamp("error", `no answer: ${e.message}`);
  } finally {
    busy--;
  }
}

addEventListener("hashchange", () => { navigate(); show(); window.scrollTo(0, 0); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(); });
navigate();
show();
addEventListener("pointerdown", () => { held = true; });
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => { held = false; });
setInterval(() => { if (!document.hidden) show(true); }, PERIOD_MS);
