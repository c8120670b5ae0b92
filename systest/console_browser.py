#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: chromium
# limit: 900
# beside
"""The console in a real browser, headless Chromium: each view, small, dark, by keyboard, with 100 hosts and 1000 namespaces, and with names
that are meant to break out. VARVE_SCREENSHOTS=FOLDER keeps pictures of three views."""
import json
import os
import signal
import socket
import sys
import threading

from appliance_lib import Daemon, check, main, wait_for
from console import HOSTILE, Fleet, api, get, series
from nvmf_lib import HOSTNQN, Host, Target
from webdriver import KEY_ENTER, KEY_TAB, Browser

VIEWS = ("overview", "load", "topology", "inflight", "trace", "blackbox")
EVIL = '<img src=x onerror="document.title=1">'
PICTURES = os.environ.get("VARVE_SCREENSHOTS")

# The least contrast of any text with what is behind it: [ratio, the text].
CONTRAST = """
  const rgb = (s) => { const m = s.match(/[0-9.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const luminance = ([r, g, b]) => { const f = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; } return [255, 255, 255, 1]; };
  let worst = [99, ""];
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim()).map((n) => n.data.trim()).join(" ");
    if (!text || !e.getClientRects().length || e.closest("noscript, title, .skip")) continue;
    const style = getComputedStyle(e), drawn = e instanceof SVGElement;
    const a = luminance(rgb(drawn ? style.fill : style.color)), rect = drawn && e.parentElement.querySelector("rect");
    const b = luminance(rect ? rgb(getComputedStyle(rect).fill) : behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, text];
  }
  return worst;
"""


def show(browser, address, view):
    browser.open(f"http://{address}/#{view}")
    browser.wait(f"document.body.dataset.view === '{view}'", f"the view {view}")


def check_page(browser, what):
    """What holds for each view: no message of the browser's, no scrolling of the page to the side, contrast (WCAG 2 AA)."""
    check(browser.messages() == [], what)
    width, room = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    check(width <= room, (what, width, room))
    ratio, text = browser.run(CONTRAST)
    check(ratio >= 4.5, (what, ratio, text))


def busy_target():
    t = Target("--metrics", "127.0.0.1:0", "-e", "bdev", trtype="TCP")
    for i in range(6):
        t.add_malloc(f"Ram{i}", 4)
    for i in range(3):
        t.add_ns(f"Ram{i}", nsid=i + 1)
    t.call("bdev_delay_create", base_bdev_name="Ram4", name="Slow", avg_read_latency=20000, p99_read_latency=20000, avg_write_latency=20000,
           p99_write_latency=20000)
    t.add_ns("Slow", nsid=9)
    t.call("trace_set_trigger", name="errors", type="io_error")
    return t, t.call("metrics_get_status")["address"]


def test_each_view_wide_and_small_light_and_dark():
    t, address = busy_target()
    with t, Host(t, "-w", "randrw", "-t", "3600", "-q", "4", nsid=9) as h, Browser() as b:
        wait_for(lambda: not h.is_running() or (series(address, "host").get(HOSTNQN) or {"iops": 0})["iops"], "figures")
        check(h.is_running(), "the host ended")
        for dark in (False, True):
            for width, height in ((1280, 900), (400, 800)):
                b.look(width, height, dark)
                for view in VIEWS:
                    show(b, address, view)
                    check_page(b, (view, width, dark))
                    if PICTURES and width == 1280 and (view, dark) in (("overview", False), ("topology", True)):
                        b.screenshot(f"{PICTURES}/console-{view}.png")
                dim = b.run("return getComputedStyle(document.documentElement).backgroundColor")
                check((dim == "rgb(18, 24, 28)") == dark, (dim, dark))


def test_views_show_what_the_daemon_tells():
    t, address = busy_target()
    with t, Host(t, "-w", "randrw", "-t", "3600", "-q", "4", nsid=9) as h, Browser() as b:
        wait_for(lambda: not h.is_running() or (series(address, "bdev").get("Slow") or {"iops": 0})["iops"], "figures")
        check(h.is_running(), "the host ended")
        show(b, address, "overview")
        b.wait("document.querySelectorAll('.chart').length === 4 && document.querySelector('.chart .line').getAttribute('d').length > 20", "four charts with lines")
        b.wait("document.getElementById('lamp-text').textContent === 'well'", "the lamp")
        b.run("document.getElementById('span-seconds').click()")
        b.wait("document.getElementById('span-seconds').getAttribute('aria-pressed') === 'true' && "
               "document.querySelector('.axis').textContent.startsWith('1 h ago')", "the hour by the second")
        line = "document.querySelector('.chart .line').getAttribute('d')"
        b.wait(f"{line}.includes('L') && Number(/^M([0-9.]+)/.exec({line})[1]) > 500", "seconds of it, at its end")
        show(b, address, "load")
        rows = "[...document.querySelectorAll('tbody tr')].map((r) => r.children[0].textContent)"
        b.wait(f"{rows}[0] === 'Slow' || {rows}[0] === 'Ram4'", "the busiest first")
        check(set(b.run(f"return {rows}")) == {x["name"] for x in api(address, "topology")["bdevs"]}, b.run(f"return {rows}"))
        b.run("const f = document.getElementById('filter'); f.focus(); f.value = 'slow'; f.dispatchEvent(new Event('input'))")
        b.wait(f"{rows}.join() === 'Slow'", "the filter")
        check(b.run("return document.activeElement.id") == "filter", "the focus stays in the filter")
        b.run("document.querySelector('tbody button').click()")
        b.wait("document.querySelectorAll('#detail .chart').length === 4", "the bdev's charts")
        check(b.run("return document.getElementById('span-seconds')") is None and
              b.run("return document.getElementById('span-hour').getAttribute('aria-pressed')") == "true", "the hour stands for its seconds")
        b.run("document.getElementById('span-minutes').click()")
        b.wait("document.querySelector('#detail .axis').textContent.startsWith('4 min ago')", "the minutes")
        b.run("document.getElementById('span-hour').click()")
        b.wait("document.querySelector('#detail .axis').textContent.startsWith('1 h ago')", "the hour")
        b.run("document.getElementById('kind-path').click(); const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
        b.wait(f"{rows}.some((x) => x.startsWith('{HOSTNQN} '))", "the path")
        show(b, address, "topology")
        b.wait("[...document.querySelectorAll('.map title')].map((x) => x.textContent).includes('Slow')", "the bdev in the picture")
        b.wait("document.querySelectorAll('.map path.busy').length >= 3", "host, subsystem, bdev and base to be joined")
        show(b, address, "inflight")
        b.wait("[...document.querySelectorAll('tbody tr')].some((r) => r.textContent.includes('Slow'))", "the commands")
        h.stop()
        b.wait("document.getElementById('none') !== null", "their end, without a reload")
        b.run("getSelection().selectAllChildren(document.querySelector('main'))")
        text = "document.getElementById('lamp-text').textContent"
        os.kill(t.pid, signal.SIGSTOP)
        b.wait(f"{text}.startsWith('no answer')", "that the daemon does not answer, although the page does not change what is selected")
        os.kill(t.pid, signal.SIGCONT)
        b.wait(f"!{text}.startsWith('no answer')", "that it answers again")
        check(t.stop() == 0, t.log())
        b.wait("document.getElementById('lamp').className === 'error'", "that the daemon is gone")


def test_the_trace_page_is_live():
    with Target("--metrics", "127.0.0.1:0", "-e", "bdev,nvmf_tcp", trtype="TCP") as t, Browser() as b:
        t.add_malloc("Ram0")
        t.add_malloc("Ram1")
        t.add_ns("Ram0", nsid=1)
        t.add_ns("Ram1", nsid=2)
        address = t.call("metrics_get_status")["address"]
        rows = "[...document.querySelectorAll('[aria-label=Trace] tbody tr')].map((r) => [...r.children].map((c) => c.textContent))"
        t.call("trace_clear")
        show(b, address, "trace")
        b.wait("document.getElementById('none') !== null", "that nothing was recorded")
        with Host(t, "-w", "randrw", "-t", "3600", "-q", "4", nsid=1) as h:
            b.wait(f"{rows}.some((r) => r[3] === 'BDEV_IO_DONE' && r[2] === 'Ram0') && {rows}.some((r) => r[3] === 'TCP_REQ_NEW')", "events, without a reload")
            check(h.is_running(), "the host ended")
            check_page(b, "trace")
            b.run("const g = document.getElementById('group'); g.value = 'nvmf_tcp'; g.dispatchEvent(new Event('change'))")
            b.wait(f"{rows}.length > 0 && {rows}.every((r) => r[3].startsWith('TCP_'))", "the group")
            b.run("const g = document.getElementById('group'); g.value = 'bdev'; g.dispatchEvent(new Event('change'))")
            asked = "performance.getEntriesByType('resource').map((r) => decodeURIComponent(r.name)).filter((n) => n.includes('text=i')).map((n) => n.split('text=')[1])"
            b.run("const type = (n) => { const f = document.getElementById('filter'); f.focus(); f.value = 'io_done'.slice(0, n); f.dispatchEvent(new Event('input'));"
                  " if (n < 7) setTimeout(type, 150, n + 1); }; type(1)")
            b.wait(f"{rows}.length > 0 && {rows}.every((r) => r[3] === 'BDEV_IO_DONE')", "the filter")
            check(b.run("return document.activeElement.id") == "filter", "the focus stays in the filter")
            texts = set(b.run(f"return {asked}"))
            check("io_done" in texts and len(texts) <= 4, f"looks are for what was typed at the end, and for what a refresh meets: {texts}")
            first = b.run(f"return {rows}[0][0]")
            b.wait(f"{rows}[0][0] !== {json.dumps(first)}", "newer events")
            b.run("document.getElementById('pause').click()")
            b.wait("document.getElementById('pause').getAttribute('aria-pressed') === 'true'", "the pause")
            check(b.run("return ['group', 'filter'].every((id) => document.getElementById(id).disabled)"), "what is kept is of the choice that was made")
            name = b.run("const c = document.querySelector('[aria-label=Trace] tbody button'); c.click(); return c.textContent")
            life = "[...document.querySelectorAll('#life tbody tr')].map((r) => [...r.children].map((c) => c.textContent))"
            b.wait(f"{life}.some((r) => r[3] === 'BDEV_IO_START') && {life}.some((r) => r[3].startsWith('TCP_REQ_'))", "the whole life, other groups too")
            after = b.run(f"return {life}.map((r) => r[0])")
            check(after[0] == "0 ns" and after[-1] != "0 ns", after)
            check(b.run("return document.querySelector('#life h2').textContent").startswith(f"The life of {name}"), name)
            for width, dark in ((400, True), (1280, False)):
                b.look(width, 800, dark)
                check_page(b, ("life", width, dark))
            if PICTURES:
                b.screenshot(f"{PICTURES}/console-trace.png")
            first = b.run(f"return {rows}[0][0]")
            h.stop()
            check(b.run(f"return {rows}[0][0]") == first, "paused")
            b.run("document.getElementById('close').click()")
            b.wait("document.getElementById('life') === null", "the life's end")
        b.run("document.getElementById('pause').click()")
        b.wait("!document.getElementById('filter').disabled", "the pause's end")
        b.run("document.querySelector('.skip').focus()")
        seen = []
        for _ in range(20):
            b.press(KEY_TAB)
            seen.append(b.run("const a = document.activeElement; return a.id || a.getAttribute('aria-label') || a.title"))
        for wanted in ("group", "filter", "pause", "Trace", "Show its life"):
            check(wanted in seen, (wanted, seen))
        t.call("trace_disable_tpoint_group", name="all")
        b.wait("document.querySelector('main').textContent.includes('trace_enable_tpoint_group')", "how to record")
        check(b.messages() == [], "no message")


class Forwarder(threading.Thread):
    """A TCP port before a Unix socket, as ssh -L makes one."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.listener = path, socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, client):
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self.path))
            head = b""
            while b"\r\n\r\n" not in head and (chunk := client.recv(8192)):
                head += chunk
            server.sendall(head)
            while chunk := server.recv(65536):
                client.sendall(chunk)


def test_copies_of_the_black_box_are_links_if_they_are_handed_out():
    with Daemon() as d, Browser() as b:
        box, path = d.folder / "box", d.folder / "metrics.sock"
        box.mkdir()
        d.call("trace_set_blackbox", directory=str(box))
        for allowed in (False, True):
            d.call("metrics_start", address=f"unix:{path}", copies=allowed)
            address = Forwarder(path).address
            app = os.path.basename(api(address, "state")["trace_file"]).split("_trace.")[0]
            name = f"{app}_blackbox.20261121T231502.123456Z.io_error.pid1"
            (box / name).write_bytes(b"a copy")
            show(b, address, "blackbox")
            row = "document.querySelector('#copies tbody tr')"
            b.wait(f"{row} !== null && {row}.textContent.includes('{name}') && {row}.textContent.includes('6 B') && {row}.textContent.includes('2026-11-21T23:15:02')", "it")
            check_page(b, ("copies", allowed))
            if allowed:
                check(b.run(f"return [{row}.querySelector('a').getAttribute('href'), {row}.querySelector('a').download]") == [f"/api/copy?name={name}", name], "the link")
                check(get(address, f"/api/copy?name={name}")[0] == b"a copy", "what it leads to")
            else:
                check(b.run(f"return {row}.querySelector('a')") is None and b.run("return document.getElementById('copies').textContent.includes('copies=true')"), "how to allow it")
            b.open("about:blank")   # so that it asks nobody who has gone
            d.call("metrics_stop")


def test_only_its_own_views_are_shown():
    t, address = busy_target()
    with t, Browser() as b:
        for name in ("constructor", "__proto__", "nothing"):
            show(b, address, "load")
            b.open(f"http://{address}/#{name}")
            b.wait("document.body.dataset.view === 'overview'", f"the overview for {name}")
            check(b.messages() == [], name)


def test_names_stay_text():
    with Target("--metrics", "127.0.0.1:0", trtype="TCP") as t, Browser() as b:
        t.add_malloc(EVIL)
        t.add_ns(EVIL, nsid=1)
        address = t.call("metrics_get_status")["address"]
        with Host(t, "-w", "randread", "-t", "3600", "-q", "2", nsid=1, hostnqn=HOSTILE) as h:
            wait_for(lambda: not h.is_running() or (series(address, "host").get(HOSTILE) or {"iops": 0})["iops"], "the host")
            check(h.is_running(), "the host ended")
            for view in VIEWS:
                show(b, address, view)
                check(b.run("return document.querySelectorAll('main img, main script').length") == 0, view)
                check(b.run("return document.title") == "varve" and b.messages() == [], view)
            show(b, address, "load")
            b.wait(f"[...document.querySelectorAll('td button')].some((x) => x.textContent === {json.dumps(EVIL)})", "the name as text")
            b.run("document.getElementById('kind-host').click()")
            b.wait(f"[...document.querySelectorAll('td button')].some((x) => x.textContent === {json.dumps(HOSTILE)})", "the host as text")


def test_everything_is_reached_by_keyboard():
    t, address = busy_target()
    with t, Browser() as b:
        wait_for(lambda: "Slow" in series(address, "bdev"), "the bdevs")
        show(b, address, "overview")
        b.run("document.activeElement.blur(); window.getSelection().removeAllRanges()")
        b.press(KEY_TAB)
        check(b.run("return document.activeElement.className") == "skip", "first the way to the content")
        for title in ("Overview", "Load"):
            b.press(KEY_TAB)
            check(b.run("return document.activeElement.textContent") == title, title)
            outline = b.run("return getComputedStyle(document.activeElement).outlineStyle")
            check(outline == "solid", outline)
        b.press(KEY_ENTER)
        b.wait("document.body.dataset.view === 'load' && document.getElementById('filter') !== null", "the view")
        seen = []
        for _ in range(40):
            b.press(KEY_TAB)
            seen.append(b.run("const a = document.activeElement; return a.id || a.getAttribute('aria-label') || a.textContent"))
        for wanted in ("Topology", "kind-bdev", "kind-path", "filter", "sort-iops", "Slow"):
            check(wanted in seen, (wanted, seen))


def test_a_thousand_namespaces_and_a_hundred_hosts():
    with Fleet() as t, Browser(400, 800) as b:
        address = t.address
        wait_for(lambda: len(series(address, "bdev")) == 1000 and len(series(address, "path")) == 100, "the series")
        for view in VIEWS:
            show(b, address, view)
            check_page(b, view)
        show(b, address, "load")
        b.wait("document.querySelectorAll('tbody tr').length === 100 && document.querySelector('#main > p').textContent.includes('100 of 1000')", "a hundred of a thousand")
        show(b, address, "topology")
        b.wait("document.querySelectorAll('.map rect').length === 72 && document.querySelector('.map').textContent.includes('and 976 with less load')", "the picture")
        b.run("const s = document.getElementById('subsystem'); s.value = 5; s.dispatchEvent(new Event('change'))")
        b.wait("document.querySelectorAll('.map rect').length === 12", "one subsystem with its host and its ten namespaces")


if __name__ == "__main__":
    main(sys.modules[__name__])
