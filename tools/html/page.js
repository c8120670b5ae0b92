// SPDX-License-Identifier: BSD-3-Clause
// The page of varve-trace --html. Times in the data are nanoseconds since the first event.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- The data, with names for what are numbers in it ----

const prefixes = Object.fromEntries(data.types.map((t) => [t.type, t.prefix]));
const lives = data.lives.map((l, i) => {
  const [type, index, owner, parent, start, end, finished, events] = l;
  const states = [];
  for (let k = 0; k < events.length; k += 2) {
    states.push({ tpoint: events[k], from: events[k + 1], to: k + 2 < events.length ? events[k + 3] : end });
  }
  return { i, type, id: index === null ? "?" : prefixes[type] + index, owner, parent, start, end, finished, states, children: [] };
});
const roots = [];
lives.forEach((l) => (l.parent >= 0 ? lives[l.parent].children : roots).push(l));
const tpointName = (t) => data.tpoints[t];
const ownerName = (o) => data.owners[o] || "";

const palette = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#86bcb6",
  "#d37295", "#8cd17d", "#b6992d", "#499894", "#a0cbe8", "#d4a6c8", "#f1ce63", "#79706e", "#fabfd2", "#bab0ac"];
const colours = {};
[...data.states].sort((a, b) => b.total - a.total).forEach((s, i) => { colours[s.tpoint] = palette[i % palette.length]; });
const colourOf = (t) => colours[t] || "#bab0ac";

function duration(ns) {
  if (ns < 1e3) return ns + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(2) + " µs";
  if (ns < 1e9) return (ns / 1e6).toFixed(2) + " ms";
  return (ns / 1e9).toFixed(3) + " s";
}

// An element with a class and children, which are elements or text: nothing of the data is ever read as HTML.
function element(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children.filter((c) => c !== null).map((c) => (c instanceof Node ? c : String(c))));
  return e;
}
function chip(tpoint) {
  const c = element("span", "chip");
  c.style.background = colourOf(tpoint);
  return c;
}
// columns: [title, row => content, left-aligned]
function table(id, columns, rows, pick, rowClass) {
  const head = element("tr", "", ...columns.map(([title, , left]) => element("th", left ? "left" : "", title)));
  const body = element("tbody", "", ...rows.map((row) => {
    const tr = element("tr", [pick ? "pick" : "", rowClass ? rowClass(row) : ""].join(" ").trim(),
      ...columns.map(([, content, left]) => element("td", left ? "left" : "", content(row))));
    if (pick) tr.addEventListener("click", () => pick(row));
    return tr;
  }));
  $(id).replaceChildren(element("thead", "", head), body);
}

// ---- What is shown: the owner's, or all ----

let owner = "";
function familyOf(l, out = []) {
  out.push(l);
  l.children.forEach((c) => familyOf(c, out));
  return out;
}
const rootOf = (l) => (l.parent >= 0 ? rootOf(lives[l.parent]) : l);
const isOwners = (l) => owner === "" || familyOf(l).some((m) => m.owner === Number(owner));
let shown = roots;
let lanes = [];

// Each request gets the first lane that is free at its start.
function lanesAssign() {
  const free = [];
  lanes = [];
  for (const l of shown) {
    let lane = free.findIndex((end) => end <= l.start);
    if (lane < 0) lane = free.length;
    free[lane] = l.end;
    l.lane = lane;
    (lanes[lane] ||= []).push(l);
  }
}

// ---- The timeline ----

const LANE = 22, MAIN = 11, SUB = 3, TOP = 2;
let chart = null, hovered = null;
const span = roots.length === 0 ? [0, Math.max(1, data.duration_ns)]
  : [Math.min(...roots.map((l) => l.start)), Math.max(...roots.map((l) => l.end))];
const whole = [span[0] / 1e6, Math.max(span[1], span[0] + 1) / 1e6];

function barsDraw(u) {
  const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
  const from = u.scales.x.min * 1e6, to = u.scales.x.max * 1e6;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const bar = (s, y, height) => {
    if (s.to < from || s.from > to) return;
    const x0 = u.valToPos(s.from / 1e6, "x", true), x1 = u.valToPos(s.to / 1e6, "x", true);
    ctx.fillStyle = colourOf(s.tpoint);
    ctx.fillRect(x0, y, Math.max(x1 - x0, 0.5), height);
  };
  for (const l of shown) {
    if (l.end < from || l.start > to) continue;
    const y = bbox.top + (l.lane * LANE + TOP) * ratio;
    l.states.forEach((s) => bar(s, y, MAIN * ratio));
    familyOf(l).slice(1, 4).forEach((m, depth) => {
      m.states.forEach((s) => bar(s, y + (MAIN + depth * SUB) * ratio, (SUB - 0.5) * ratio));
    });
    if (l === hovered || l === picked) {
      const x0 = u.valToPos(l.start / 1e6, "x", true), x1 = u.valToPos(l.end / 1e6, "x", true);
      ctx.strokeStyle = css("--text");
      ctx.lineWidth = 1.5 * ratio;
      ctx.strokeRect(x0, y - ratio, Math.max(x1 - x0, 1), (MAIN + 3 * SUB + 1) * ratio);
    }
    if (!l.finished) {
      const x = u.valToPos(l.end / 1e6, "x", true);
      ctx.fillStyle = css("--hot");
      ctx.fillRect(x - 3 * ratio, y, 3 * ratio, MAIN * ratio);
    }
  }
  ctx.restore();
}

// The request and the state under a place of the plot.
function hit(u, left, top) {
  const at = u.posToVal(left, "x") * 1e6, slack = (u.scales.x.max - u.scales.x.min) * 1e6 * 2 / u.over.clientWidth;
  const l = (lanes[Math.floor(top / LANE)] || []).find((m) => m.start - slack <= at && at <= m.end + slack);
  if (!l) return null;
  const depth = Math.floor((top % LANE - TOP - MAIN) / SUB);
  const member = depth >= 0 ? familyOf(l)[Math.min(depth, 2) + 1] || l : l;
  return { l, member, state: member.states.find((s) => s.from <= at && at < s.to) || member.states[0] };
}

function tipShow(event, found) {
  $("tip").hidden = !found;
  if (!found) return;
  const { l, member, state } = found;
  $("tip").replaceChildren(
    element("div", "", element("b", "", l.id), ` ${l.finished ? "took" : "not finished after"} ${duration(l.end - l.start)}`),
    element("div", "", ownerName(l.owner)),
    state ? element("div", "", chip(state.tpoint), `${member.id} ${tpointName(state.tpoint)}: ${duration(state.to - state.from)}`) : null);
  $("tip").style.left = Math.min(event.clientX + 14, innerWidth - 420) + "px";
  $("tip").style.top = event.clientY + 16 + "px";
}

function listen(u) {
  u.over.addEventListener("mousemove", (event) => {
    const box = u.over.getBoundingClientRect();
    const found = hit(u, event.clientX - box.left, event.clientY - box.top);
    tipShow(event, found);
    if ((found && found.l) !== hovered) {
      hovered = found && found.l;
      u.redraw(false);
    }
  });
  u.over.addEventListener("mouseleave", () => { $("tip").hidden = true; hovered = null; u.redraw(false); });
  u.over.addEventListener("click", (event) => {
    const box = u.over.getBoundingClientRect();
    const found = hit(u, event.clientX - box.left, event.clientY - box.top);
    if (found) detailShow(found.l);
  });
  u.over.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = u.over.getBoundingClientRect(), at = u.posToVal(event.clientX - box.left, "x");
    const factor = event.deltaY < 0 ? 0.7 : 1 / 0.7;
    zoom(at - (at - u.scales.x.min) * factor, at + (u.scales.x.max - at) * factor);
  }, { passive: false });
}

function zoom(min, max) {
  min = Math.max(min, whole[0]);
  max = Math.min(max, whole[1]);
  if (max - min > 1e-6) chart.setScale("x", { min, max });
}

function windowShow(u) {
  const { min, max } = u.scales.x;
  $("window").textContent = `${duration(Math.round(min * 1e6))} to ${duration(Math.round(max * 1e6))}, ` +
    `${shown.length} of ${data.num_roots} requests${data.num_roots > roots.length ? " (the slowest, and some of the others)" : ""}`;
}

function timelineMake() {
  lanesAssign();
  if (chart) chart.destroy();
  const axis = { stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
  const plot = Math.max(lanes.length, 4) * LANE;
  chart = new uPlot({
    width: $("timeline").clientWidth, height: plot + 38, padding: [0, 12, 4, 12],
    cursor: { drag: { x: true, y: false }, points: { show: false }, y: false },
    legend: { show: false },
    scales: { x: { time: false, min: whole[0], max: whole[1], auto: false }, y: { range: [0, 1] } },
    axes: [{ ...axis, side: 0, size: 34, values: (u, ticks) => ticks.map((t) => duration(Math.round(t * 1e6))), space: 110 }, { show: false }],
    series: [{}, { show: false }],
    hooks: { draw: [barsDraw], setScale: [windowShow], ready: [windowShow] },
  }, [whole, [null, null]], $("timeline"));
  listen(chart);
}

// ---- One request ----

let picked = null;
function detailShow(l) {
  picked = l;
  const rows = familyOf(l).flatMap((m) => m.states.map((s) => ({ m, s }))).sort((a, b) => a.s.from - b.s.from);
  const guilty = (data.slowest.find((s) => s.life === l.i) || {});
  $("detail").hidden = false;
  $("detail-title").textContent = `${l.id}: ${duration(l.end - l.start)}, ${ownerName(l.owner)}`;
  table("detail-table", [
    ["after the start", (r) => duration(r.s.from - l.start)],
    ["object", (r) => r.m.id, true],
    ["what happened", (r) => element("span", "", chip(r.s.tpoint), tpointName(r.s.tpoint)), true],
    ["owner", (r) => ownerName(r.m.owner), true],
    ["until its next event", (r) => (r.s.to > r.s.from || !r.m.finished ? duration(r.s.to - r.s.from) : "")],
  ], rows, null, (r) => (r.m.i === guilty.culprit && r.s.tpoint === guilty.tpoint ? "culprit" : ""));
  const margin = (l.end - l.start) / 5 / 1e6;
  zoom(l.start / 1e6 - margin, l.end / 1e6 + margin);
  $("timeline").scrollTop = Math.max(0, l.lane * LANE - 100);
}

// ---- Tables ----

function slowestShow() {
  const rows = data.slowest.filter((s) => isOwners(lives[s.life]));
  table("slowest", [
    ["request", (s) => lives[s.life].id, true],
    ["began after", (s) => duration(lives[s.life].start)],
    ["took", (s) => duration(lives[s.life].end - lives[s.life].start) + (lives[s.life].finished ? "" : ", not finished")],
    ["owner", (s) => ownerName(lives[s.life].owner), true],
    ["most of it in", (s) => element("span", "", chip(s.tpoint), `${tpointName(s.tpoint)} of ${lives[s.culprit].id}`), true],
    ["that was", (s) => duration(s.ns)],
  ], rows, (s) => detailShow(lives[s.life]));
}

function share(part, all, colour) {
  const bar = element("span", "share");
  bar.style.width = Math.round(80 * part / (all || 1)) + "px";
  bar.style.background = colour;
  return element("span", "", bar, (100 * part / (all || 1)).toFixed(1) + " %");
}

const times = [["count", (s) => s.count], ["median", (s) => duration(s.median)], ["90 %", (s) => duration(s.p90)],
  ["99 %", (s) => duration(s.p99)], ["99.9 %", (s) => duration(s.p999)], ["max", (s) => duration(s.max)]];

function statesShow() {
  const sums = {};
  data.states.forEach((s) => { sums[s.type] = (sums[s.type] || 0) + s.total; });
  table("states", [
    ["objects", (s) => prefixes[s.type], true],
    ["state", (s) => element("span", "", chip(s.tpoint), tpointName(s.tpoint)), true],
    ...times,
    ["share", (s) => share(s.total, sums[s.type], colourOf(s.tpoint)), true],
  ], data.states);
}

function ownersShow() {
  table("owners", [
    ["owner", (o) => ownerName(o.owner), true],
    ["objects", (o) => prefixes[o.type], true],
    ...times,
    ["most time in", (o) => element("span", "", chip(o.tpoint), tpointName(o.tpoint) || ""), true],
    ["share", (o) => share(o.part, o.all, colourOf(o.tpoint)), true],
  ], data.by_owner, (o) => { $("owner").value = String(o.owner); $("owner").dispatchEvent(new Event("change")); });
}

// ---- Histograms ----

// Bucket k of the data: a quarter of an octave. Its lower bound in nanoseconds.
const bucketFrom = (k) => (k < 4 ? k : 2 ** Math.floor(k / 4) * (1 + (k % 4) / 4));
function bucketOf(ns) {
  if (ns < 4) return ns;
  const e = Math.floor(Math.log2(ns));
  return e * 4 + Math.floor((ns / 2 ** e - 1) * 4);
}

// Over the whole trace, or over the shown requests of one owner.
function histogramOf(tpoint) {
  if (owner === "") return new Map(data.states.find((s) => s.tpoint === tpoint).histogram);
  const counts = new Map();
  for (const l of shown) {
    for (const m of familyOf(l)) {
      m.states.slice(0, -1).filter((s) => s.tpoint === tpoint)
        .forEach((s) => { const k = bucketOf(s.to - s.from); counts.set(k, (counts.get(k) || 0) + 1); });
    }
  }
  return counts;
}

function histogramMake(state, width) {
  const counts = histogramOf(state.tpoint);
  if (counts.size === 0) return null;
  const first = Math.min(...counts.keys()) - 1, last = Math.max(...counts.keys()) + 1, xs = [], ys = [];
  for (let k = first; k <= last; k++) {
    xs.push(k);
    ys.push(counts.get(k) || null);
  }
  const box = element("div", "histogram", element("h3", "", chip(state.tpoint), tpointName(state.tpoint)));
  const axis = { stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  new uPlot({
    width, height: 130, legend: { show: false }, cursor: { show: false }, padding: [6, 8, 0, 0],
    scales: { x: { time: false, range: [first - 0.5, last + 0.5] }, y: { distr: 3, range: (u, low, high) => [0.5, Math.max(high, 2) * 1.5] } },
    axes: [{ ...axis, size: 24, space: 62, values: (u, ticks) => ticks.map((k) => (Number.isInteger(k) && k >= 0 ? duration(Math.round(bucketFrom(k))) : "")) },
      { ...axis, size: 44, values: (u, ticks) => ticks.map((t) => (t === 1 || Number.isInteger(Math.log10(t)) ? t : "")) }],
    series: [{}, { paths: uPlot.paths.bars({ size: [0.9], align: 1 }), fill: colourOf(state.tpoint), stroke: colourOf(state.tpoint), points: { show: false } }],
  }, [xs, ys], box);
  return box;
}

function histogramsShow() {
  const width = 300;
  $("histograms").replaceChildren(...data.states.map((s) => histogramMake(s, width)).filter((h) => h));
}

// ---- All of it ----

function legendShow() {
  $("legend").replaceChildren(...[...data.states].sort((a, b) => b.total - a.total).slice(0, 14)
    .map((s) => element("span", "", chip(s.tpoint), tpointName(s.tpoint))));
}

// Why the file was made, and how its writer crashed.
function noticesShow() {
  const lines = [], cause = data.cause;
  if (data.crash) lines.push(element("p", "", element("b", "", "Crashed: "), data.crash));
  if (cause) {
    lines.push(element("p", "", element("b", "", `Black box: trigger ${cause.trigger || "?"} (${cause.type || "?"}) `),
      `fired${data.cause_when ? " at " + data.cause_when : ""}${data.cause_ns === undefined ? "" : ", " + duration(data.cause_ns) + " after the first event"}`));
    if (cause.text) lines.push(element("p", "", element("b", "", "Cause: "), cause.text));
    const life = data.cause_life === undefined ? null : lives[data.cause_life];
    lines.push(element("p", "", element("b", "", "Culprit: "), cause.lcore !== undefined ? `the reactor on lcore ${cause.lcore}`
      : life ? element("button", "", life.id) : cause.object ? "its events are not in this file" : "not known"));
    if (life) lines[lines.length - 1].querySelector("button").addEventListener("click", () => detailShow(rootOf(life)));
  }
  $("notices").replaceChildren(...lines);
  $("notices").hidden = lines.length === 0;
}

function filter(to) {
  owner = to;
  shown = roots.filter(isOwners);
  picked = null;
  $("detail").hidden = true;
  timelineMake();
  slowestShow();
  histogramsShow();
}

$("title").textContent = data.title;
$("subtitle").textContent = data.subtitle;
document.title = data.title;
const used = [...new Set([...lives.map((l) => l.owner), ...data.by_owner.map((o) => o.owner)])].filter((o) => o > 0);
used.sort((a, b) => ownerName(a).localeCompare(ownerName(b)))
  .forEach((o) => { const e = element("option", "", ownerName(o)); e.value = String(o); $("owner").append(e); });
$("owner").addEventListener("change", () => filter($("owner").value));
$("reset").addEventListener("click", () => zoom(...whole));
addEventListener("resize", () => chart.setSize({ width: $("timeline").clientWidth, height: chart.height }));
noticesShow();
legendShow();
statesShow();
ownersShow();
filter("");
document.body.dataset.ready = "1";
})();
