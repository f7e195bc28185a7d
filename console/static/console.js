// What pages have beyond their HTML: moments are told as time that has passed, and what is open is kept up to date.
"use strict";

const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** How far a moment is from now: "3m ago", "in 20s". */
function away(moment, now) {
  const seconds = Math.round((now - moment) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "now";
  let text = "";
  for (const [name, length] of units) {
    if (size < length) continue;
    text = Math.floor(size / length) + name;
    const rest = units[units.findIndex((u) => u[0] === name) + 1];
    if (rest && size / length < 5) {
      const more = Math.floor((size % length) / rest[1]);
      if (more > 0) text += more + rest[0];
    }
    break;
  }
  return seconds >= 0 ? text + " ago" : "in " + text;
}

/** How moments are told: as time that has passed, or exactly, in UTC as in logs. It is kept for the next page. */
let exact = false;

function tellTimes(root) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const text = exact ? time.dateTime.slice(0, 19).replace("T", " ") + "Z" : away(Date.parse(time.dateTime), now);
    if (time.textContent !== text) time.textContent = text;
  }
}

/** The names of the attributes that count: whether something is open is up to the reader. */
function attributesOf(e) {
  return Array.from(e.attributes, (a) => a.name).filter((name) => !(e.tagName === "DETAILS" && name === "open"));
}

/** Whether one node may become the other, for all that can be seen of them alone; space is like nothing. */
function alike(a, b) {
  return a.nodeName === b.nodeName && (a.nodeType === Node.ELEMENT_NODE ? a.className === b.className : a.nodeValue.trim() !== "");
}

/** Makes an element like another one, and keeps what a person has done to it: focus, what is open, what is typed. */
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
  if (old.nodeName === "TIME") return; // told by tellTimes
  if (old.nodeName === "FORM" && old.contains(document.activeElement)) return;
  const named = new Map();
  for (const child of old.children) if (child.id) named.set(child.id, child);
  let at = old.firstChild;
  const children = Array.from(next.childNodes);
  for (const [i, child] of children.entries()) {
    // What is of a sort that does not come any more, or only space, is dropped, so that what follows keeps its place and the focus.
    while (at && !at.id && at.nodeName !== child.nodeName && !children.slice(i).some((later) => alike(at, later))) {
      const following = at.nextSibling;
      at.remove();
      at = following;
    }
    const same = child.id ? named.get(child.id) : null;
    if (same) {
      if (same !== at) old.insertBefore(same, at);
      else at = at.nextSibling;
      become(same, child);
    } else if (at && !(at.id && next.querySelector("#" + CSS.escape(at.id))) && at.nodeName === child.nodeName && !at.id && !child.id) {
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
  /** Says that nobody is logged in any more; what is shown stays to be read. */
  const end = () => {
    if (over) return;
    over = true;
    source.close();
    say("Not kept up to date any more.");
    const notice = document.createElement("p");
    notice.className = "notice bad";
    notice.setAttribute("role", "alert");
    const login = document.createElement("a");
    login.href = "/console/login?over=1&next=" + encodeURIComponent(location.pathname + location.search);
    login.textContent = "Log in again";
    notice.append("The session has ended. ", login, ".");
    main.prepend(notice);
  };
  /** Finds out why there is no stream; a browser does not tell, and does not try again. */
  const ask = async () => {
    say("Not kept up to date any more: load the page again.");
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
      tellTimes(main);
      say("Kept up to date.");
      main.dataset.updates = String(Number(main.dataset.updates || 0) + 1);
    };
    source.addEventListener("gone", () => {
      source.close();
      say("Not kept up to date any more: load the page again.");
    });
    source.addEventListener("over", end);
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) ask();
      else say("The connection is lost; what is shown may be old.");
    };
  };
  begin();
  // Who reads what changes can have it stay as it is.
  let paused = false;
  toggle("pause", false, (on) => {
    paused = on;
    source.close();
    if (!paused && !over) begin();
    if (!over) say(paused ? "Paused: what is shown is as of " + new Date().toISOString().slice(11, 19) + " UTC." : "Kept up to date.");
  });
  // A page that nobody sees needs no data.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (over) return;
    else if (!paused && source.readyState === EventSource.CLOSED) begin();
  });
  addEventListener("pagehide", () => source.close());
}

/** Has a button be on or off, and calls change with what it is. */
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

/** What this browser remembers of the reader's wishes; nothing where it may not. */
const wishes = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* then for this page only */ } },
};

/** Copies what a button names. */
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
  exact = wishes.get("fairlead-times") === "exact";
  toggle("times", exact, (on) => {
    exact = on;
    wishes.set("fairlead-times", on ? "exact" : "");
    tellTimes(document);
  });
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.("button[data-copy]");
    if (button) copy(button);
  });
  tellTimes(document);
  setInterval(() => tellTimes(document), 1000);
  const main = document.querySelector("main[data-live]");
  if (main && "EventSource" in window) follow(main);
});
