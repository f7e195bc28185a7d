// Enhances pages: relative times, and updates of open pages.
"use strict";

const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** A duration in seconds as text: "3m", "2h5m". */
function duration(seconds) {
  for (const [i, [name, length]] of units.entries()) {
    if (seconds < length) continue;
    let text = Math.floor(seconds / length) + name;
    if (units[i + 1] && seconds / length < 5) {
      const more = Math.floor((seconds % length) / units[i + 1][1]);
      if (more > 0) text += more + units[i + 1][0];
    }
    return text;
  }
  return "0s";
}

/** The distance of a time from now: "3m ago", "in 20s". */
function away(time, now) {
  const seconds = Math.round((now - time) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "now";
  return seconds >= 0 ? duration(size) + " ago" : "in " + duration(size);
}

/** Whether times are exact, in UTC as in logs, or relative to now. The browser keeps the choice for the next page. */
let exact = false;

/** Writes the text of all times: "3m ago", or "for 3m" for the beginning of a state. */
function showTimes(root) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const since = "since" in time.dataset, at = Date.parse(time.dateTime);
    let text = since ? "for " + duration(Math.max(0, Math.round((now - at) / 1000))) : away(at, now);
    if (exact) text = (since ? "since " : "") + time.dateTime.slice(0, 19).replace("T", " ") + "Z";
    if (time.textContent !== text) time.textContent = text;
  }
}

/** The names of the attributes to compare. The reader decides which details are open. */
function attributesOf(e) {
  return Array.from(e.attributes, (a) => a.name).filter((name) => !(e.tagName === "DETAILS" && name === "open"));
}

/** Whether one node can become the other, as far as these two show. White space is like no node. */
function alike(a, b) {
  return a.nodeName === b.nodeName && (a.nodeType === Node.ELEMENT_NODE ? a.className === b.className : a.nodeValue.trim() !== "");
}

/** The id of a node, or null. The property "id" of a form is a field with this name, if it has one. */
function idOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("id") : null;
}

/** Makes an element like another one, and keeps its focus, open details and typed text. */
function become(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const name of attributesOf(old)) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const name of attributesOf(next)) {
    if (old.getAttribute(name) !== next.getAttribute(name)) old.setAttribute(name, next.getAttribute(name));
  }
  if (old.nodeName === "TIME") return; // written by showTimes
  if (old.nodeName === "FORM" && old.contains(document.activeElement)) return;
  const named = new Map();
  for (const child of old.children) if (idOf(child)) named.set(idOf(child), child);
  let at = old.firstChild;
  const children = Array.from(next.childNodes);
  for (const [i, child] of children.entries()) {
    // Nodes without a counterpart are dropped first, so that the nodes after them keep their place and the focus.
    while (at && !idOf(at) && at.nodeName !== child.nodeName && !children.slice(i).some((later) => alike(at, later))) {
      const following = at.nextSibling;
      at.remove();
      at = following;
    }
    const same = named.get(idOf(child));
    if (same) {
      if (same !== at) old.insertBefore(same, at);
      else at = at.nextSibling;
      become(same, child);
    } else if (at && at.nodeName === child.nodeName && !idOf(at) && !idOf(child)) {
      const following = at.nextSibling;
      become(at, child);
      at = following;
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) {
    const following = at.nextSibling;
    at.remove();
    at = following;
  }
}

function follow(main) {
  const state = document.getElementById("live-state");
  const say = (text) => { if (state) state.textContent = text; };
  let source, over = false;
  /** Shows that the session has ended. The contents stay readable. */
  const end = () => {
    if (over) return;
    over = true;
    source.close();
    say("No longer updated.");
    const notice = document.createElement("p");
    notice.className = "notice bad";
    notice.setAttribute("role", "alert");
    const login = document.createElement("a");
    login.href = "/console/login?over=1&next=" + encodeURIComponent(location.pathname + location.search);
    login.textContent = "Log in again";
    notice.append("The session has ended. ", login, ".");
    main.prepend(notice);
  };
  /** Finds the reason why the stream failed. An EventSource neither reports it nor reconnects. */
  const ask = async () => {
    say("No longer updated: reload the page.");
    const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" }).catch(() => null);
    if (answer && answer.status === 401) end();
  };
  const begin = () => {
    source = new EventSource(main.dataset.live);
    source.onmessage = (e) => {
      const next = document.createElement("main");
      next.innerHTML = JSON.parse(e.data);
      for (const a of main.attributes) next.setAttribute(a.name, a.value);
      become(main, next);
      showTimes(main);
      say("Updated live.");
      main.dataset.updates = String(Number(main.dataset.updates || 0) + 1);
    };
    source.addEventListener("gone", () => {
      source.close();
      say("No longer updated: reload the page.");
    });
    source.addEventListener("over", end);
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) ask();
      else say("The connection is lost. The page may be out of date.");
    };
  };
  begin();
  // The reader can stop the updates, to read.
  let paused = false;
  toggle("pause", false, (on) => {
    paused = on;
    source.close();
    if (!paused && !over) begin();
    if (!over) say(paused ? "Paused at " + new Date().toISOString().slice(11, 19) + " UTC." : "Updated live.");
  });
  // A hidden page needs no updates.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (over) return;
    else if (!paused && source.readyState === EventSource.CLOSED) begin();
  });
  addEventListener("pagehide", () => source.close());
}

/** Makes a button switch on and off, and calls change with its state. */
function toggle(id, on, change) {
  const button = document.getElementById(id);
  if (!button) return;
  button.setAttribute("aria-pressed", String(on));
  button.addEventListener("click", () => {
    on = !on;
    button.setAttribute("aria-pressed", String(on));
    change(on);
  });
}

/** The preferences of the reader, stored by the browser if it allows that. */
const preferences = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* for this page only */ } },
};

/** Copies the text of a button. */
async function copy(button) {
  let done = "Copied";
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    done = "Not copied";
  }
  button.textContent = done;
  const said = document.getElementById("said");
  if (said) said.textContent = done + ": " + button.dataset.copy;
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

document.documentElement.classList.add("js");
addEventListener("DOMContentLoaded", () => {
  exact = preferences.get("fairlead-times") === "exact";
  toggle("times", exact, (on) => {
    exact = on;
    preferences.set("fairlead-times", on ? "exact" : "");
    showTimes(document);
  });
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.("button[data-copy]");
    if (button) copy(button);
  });
  showTimes(document);
  setInterval(() => showTimes(document), 1000);
  const main = document.querySelector("main[data-live]");
  if (main && "EventSource" in window) follow(main);
});
