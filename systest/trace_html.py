#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 600
# beside
"""The page of varve-trace --html: complete in itself, and in a real browser (headless Chromium) it zooms, hovers and filters by owner."""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, check, main

TOOL = BUILD / "bin" / "varve-trace"
LIMIT = 200
REQUESTS, LCORES = 200, 2

# Drives the page as a person would, with events of mouse, wheel and selection, and leaves what it saw in an element.
DRIVER = """
<script>
addEventListener("load", () => {
  const seen = {}, $ = (id) => document.getElementById(id);
  const text = (id) => $(id).textContent, rows = (id) => [...$(id).querySelectorAll("tbody tr")];
  const over = () => document.querySelector("#timeline .u-over");
  const at = (x, y) => { const b = over().getBoundingClientRect(); return {clientX: b.left + x, clientY: b.top + y, bubbles: true, cancelable: true}; };
  const steps = [
    () => {
      seen.notices = $("notices").hidden ? "" : text("notices");
      const culprit = $("notices").querySelector("button");
      if (culprit) { culprit.click(); seen.notice_detail = text("detail-title"); $("reset").click(); }
    },
    () => { seen.window = text("window"); over().dispatchEvent(new WheelEvent("wheel", {deltaY: -100, ...at(20, 8)})); },
    () => {
      seen.zoomed = text("window");
      for (let x = 1; x < 600 && $("tip").hidden; x++) over().dispatchEvent(new MouseEvent("mousemove", at(x, 8)));
      seen.tip = $("tip").hidden ? "" : text("tip");
      over().dispatchEvent(new MouseEvent("mouseleave"));
      seen.tip_gone = $("tip").hidden;
      $("reset").click();
    },
    () => {
      seen.reset = text("window");
      seen.owners = [...$("owner").options].map((o) => o.textContent);
      seen.requests = rows("slowest").length;
      $("owner").value = [...$("owner").options].find((o) => o.textContent.includes("host2")).value;
      $("owner").dispatchEvent(new Event("change"));
    },
    () => {
      seen.filtered = text("window");
      seen.slowest_owners = rows("slowest").map((r) => r.children[3].textContent);
      rows("slowest")[0].click();
    },
    () => {
      seen.detail = text("detail-title");
      seen.detail_rows = rows("detail-table").length;
      seen.culprit = document.querySelector("tr.culprit").textContent;
      seen.states = rows("states").length;
      seen.histograms = document.querySelectorAll(".histogram canvas").length;
      const c = document.querySelector("#timeline canvas"), pixels = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      const colours = new Set();
      for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
      seen.colours = colours.size;
      const pre = document.createElement("pre");
      pre.id = "seen";
      pre.textContent = JSON.stringify(seen);
      document.body.append(pre);
    },
  ];
  const step = () => { const s = steps.shift(); if (s) { s(); setTimeout(step, 100); } };
  setTimeout(step, 100);
});
addEventListener("error", (e) => { const pre = document.createElement("pre"); pre.id = "failed"; pre.textContent = e.message; document.body.append(pre); });
</script>
"""


def run(*args):
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=LIMIT)
    check(p.returncode == 0, p.stderr)


def page_make(folder, *args):
    trace, page = folder / "made_trace.1", folder / "page.html"
    subprocess.run([BUILD / "bench" / "trace-sample", trace, str(REQUESTS), str(LCORES), "50", "1"], check=True, timeout=LIMIT)
    run("-f", trace, "--html", page, *args)
    return page.read_text()


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])


def browse(folder, page):
    """The page's text after scripts have run; None if there is no browser that starts."""
    browser = shutil.which("chromium")
    path = folder / "driven.html"
    path.write_text(page)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1500",
               f"--user-data-dir={folder}/profile", "--virtual-time-budget=10000", "--dump-dom"]
    try:
        if not browser or b"<html" not in subprocess.run([*command, "about:blank"], capture_output=True, timeout=LIMIT).stdout:
            return None
    except subprocess.TimeoutExpired:
        return None
    return subprocess.run([*command, f"file://{path}"], capture_output=True, text=True, timeout=LIMIT).stdout


def test_the_page_needs_no_network_and_carries_the_trace():
    with tempfile.TemporaryDirectory() as folder:
        page = page_make(pathlib.Path(folder))
        check(not re.search(r'(src|href)\s*=\s*["\']?(https?:)?//', page) and "@import" not in page, "it loads something")
        check(not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource)\s*\(", page), "it can load something")
        check("The MIT License" in page and "Leon Sorokin" in page, "uPlot's licence")
        data = data_of(page)
        check(data["num_roots"] == REQUESTS * LCORES and len(data["lives"]) == 4 * REQUESTS * LCORES, data["num_roots"])
        check(len(data["by_owner"]) == 8 + 1 + 2 * 2, len(data["by_owner"]))
        for s in data["states"]:
            check(sum(n for _, n in s["histogram"]) == s["count"] and s["median"] <= s["p999"] <= s["max"], s)
        slowest = data["slowest"][0]
        check(data["tpoints"][str(slowest["tpoint"])] == "NVME_PCIE_SUBMIT" and slowest["ns"] > 19_000_000, slowest)


def test_a_large_trace_is_thinned_but_keeps_its_slowest():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trace, page = folder / "made_trace.1", folder / "page.html"
        subprocess.run([BUILD / "bench" / "trace-sample", trace, "6000", "1", "1000", "0"], check=True, timeout=LIMIT)
        run("-f", trace, "--html", page)
        data = data_of(page.read_text())
        roots = [life for life in data["lives"] if life[3] == -1]
        check(data["num_roots"] == 6000 and 1500 <= len(roots) <= 3100, len(roots))
        check(sum(r[5] - r[4] > 19_000_000 for r in roots) == 6, "the slow ones")
        check(max(s["count"] for s in data["states"]) == 6000, "the tables count all")


# What a black box's copy, and one whose writer crashed, have more.
NOTICES = ('"crash":"SIGSEGV sent by process 4711 (bash), uid 0, in thread varve (1)","cause":{"trigger":"slow","type":"request_age","text":"it was <b>slow</b>",'
           '"object":{"value":1,"type":1,"start_tsc":1}},"cause_when":"2026-11-24 01:02:03.000000","cause_ns":2000000,"cause_life":1,')


def test_it_zooms_hovers_and_filters_in_a_browser():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        page = page_make(folder)
        check('"crash"' not in page.split('<script id="data"')[1].split("</script>")[0], "no notice")
        dom = browse(folder, page.replace('"num_roots"', NOTICES + '"num_roots"', 1) + DRIVER)
    if dom is None:
        print("SKIP trace_html.test_it_zooms_hovers_and_filters_in_a_browser: no chromium that starts")
        return
    failed = re.search(r'<pre id="failed">(.*?)</pre>', dom, re.S)
    check(not failed, f"the page's script failed: {failed and failed[1]}")
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
    check(found, "the page did not get through it")
    seen = json.loads(html.unescape(found[1]))
    check(all(x in seen["notices"] for x in ("Crashed: SIGSEGV sent by process 4711", "trigger slow (request_age) fired at 2026", "2.00 ms after",
                                             "it was <b>slow</b>", "Culprit: ")), seen["notices"])
    check(re.match(r"r\d+: ", seen["notice_detail"]), seen["notice_detail"])
    check(f"{REQUESTS * LCORES} of {REQUESTS * LCORES} requests" in seen["window"], seen["window"])
    check(seen["zoomed"] != seen["window"] and seen["reset"] == seen["window"], seen)
    check(re.match(r"r\d+ (took|not finished after) [\d.]+ (µs|ms)nqn\..*: ", seen["tip"]) and seen["tip_gone"], seen["tip"])
    check(len(seen["owners"]) == 1 + 8 + 1 + 2, seen["owners"])
    check(seen["filtered"] != seen["window"] and 0 < len(seen["slowest_owners"]) < seen["requests"], seen)
    check(all("host2" in owner for owner in seen["slowest_owners"]), seen["slowest_owners"])
    check("host2" in seen["detail"] and seen["detail_rows"] in (8, 16) and "NVME_PCIE_SUBMIT" in seen["culprit"], seen)
    check(seen["states"] == 12 and seen["histograms"] == 12 and seen["colours"] > 8, seen)


if __name__ == "__main__":
    main(sys.modules[__name__])
