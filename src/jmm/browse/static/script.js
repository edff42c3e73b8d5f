"use strict";

const $ = (id) => document.getElementById(id);

// Colours and strengths are those of `jmm heatmap`: red above 0, blue below.
const RED = [220, 0, 0], BLUE = [0, 60, 220], OPACITY = 0.8;
const MOST_PICTURES = 8;

let about = null;
let query = null;          // of the hits: {text}, or {picture, name, id}; null for recent files
let hits = [];
let shown = -1;            // index of the hit in the viewer
let layer = "contributions";
let searching = new AbortController();
let heating = new AbortController();
let leaving = null;          // a step Back that is under way
let isFollowing = false;     // whether the viewer is closed because the address has changed
const heats = new Map();     // of the present query, by page
const pictures = new Map();  // searched by in this session, by the id in the history's state

// --- asking the server ---

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("No answer: is `jmm browse` still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error || `Status ${response.status}`);
  return answer;
}

function askByQuery(path, {text, picture}, signal) {
  const kind = picture?.type.startsWith("image/") ? picture.type : "application/octet-stream";
  return ask(path, {
    method: "POST",
    signal,
    headers: {"Content-Type": picture ? kind : "application/json"},
    body: picture || JSON.stringify({query: text}),
  });
}

const pageName = (hit) => `${hit.content}/${hit.page}`;
const pagePath = (kind, hit) => `/${kind}/${pageName(hit)}`;

function say(text, isProblem = false) {
  $("status").textContent = text;
  $("status").classList.toggle("problem", isProblem);
}

// --- searching ---

// Shows what answers a query, or, for null, the files that were written to last. The hits of
// before stay until there are others; the address follows what is shown.
async function show(wanted, {remember = true} = {}) {
  searching.abort();
  searching = new AbortController();
  const signal = searching.signal;
  say(wanted ? "Searching…" : "");
  let found, now;
  try {
    [found, now] = await Promise.all([
      wanted ? askByQuery("/search", wanted, signal) : ask("/recent", {signal}),
      ask("/about", {signal}),
    ]);
  } catch (error) {
    if (!signal.aborted) say(withName(error.message, wanted), true);
    return false;
  }
  await leaving;
  if (signal.aborted) return false;
  [hits, about, query] = [found.hits, now, wanted];
  heating.abort();
  heats.clear();
  closeViewer();
  if (remember) remind(history.pushState, address(wanted), wanted);
  document.title = wanted?.text ? `${wanted.text} – jmm` : "jmm";
  takePicture(wanted);
  showResults();
  say(summary());
  return true;
}

const address = (wanted) => wanted?.text ? `/?q=${encodeURIComponent(wanted.text)}` : "/";

// A page that is open has an address of its own, and Back closes it.
function remind(change, url, wanted, isPage = false) {
  change.call(history, {picture: wanted?.id, isPage}, "", url);
}

function summary() {
  const n = hits.length.toLocaleString("en");
  if (!about.pages) return `${about.folder} has no pages yet. \`jmm index\` adds some.`;
  if (query && hits.length < about.pages) return `${n} best of ${count(about.pages, "page")}`;
  if (query) return `${count(hits.length, "page")}, best first`;
  const how = about.pictures ? "Type, or drop a picture." : "Type to search.";
  const recent = hits.length ? " Written to last:" : "";
  return `${count(about.pages, "page")} in ${about.folder}. ${how}${recent}`;
}

// The server knows a dropped picture by its size alone.
function withName(message, wanted) {
  return wanted?.name ? message.replace(/^picture of \d+ bytes/, () => wanted.name) : message;
}

function searchText(text) {
  text = text.trim();
  show(text ? {text} : null);
}

async function searchPicture(file) {
  if (!about?.pictures) return say("The model of this index reads no pictures.", true);
  if (file.size > about.most_picture_bytes) {
    return say(`${file.name} is larger than ${about.most_picture_bytes / 2 ** 20} MiB.`, true);
  }
  let picture;
  try {
    // a copy: the file may change before the heat maps are asked for
    picture = new Blob([await file.arrayBuffer()], {type: file.type});
  } catch {
    return say(`${file.name} cannot be read.`, true);
  }
  const wanted = {picture, name: file.name, id: crypto.randomUUID()};
  pictures.set(wanted.id, wanted);
  if (pictures.size > MOST_PICTURES) pictures.delete(pictures.keys().next().value);
  if (await show(wanted)) $("query").value = "";
}

function takePicture(wanted) {
  const image = $("chip-picture");
  URL.revokeObjectURL(image.src);
  $("chip").hidden = !wanted?.picture;
  $("chip-name").textContent = wanted?.name || "";
  $("chip-name").hidden = true;
  image.hidden = false;
  if (wanted?.picture) image.src = URL.createObjectURL(wanted.picture);
  else image.removeAttribute("src");
}

// The model's side reads more kinds of files than a browser shows.
$("chip-picture").addEventListener("error", () => {
  $("chip-picture").hidden = true;
  $("chip-name").hidden = false;
});

// Shows what the address and the history's state say.
async function follow() {
  const text = new URLSearchParams(location.search).get("q") || "";
  const wanted = text ? {text} : pictures.get(history.state?.picture) || null;
  const name = location.hash.slice(1);
  if (!about || wanted?.text !== query?.text || wanted?.id !== query?.id) {
    $("query").value = text;
    if (!await show(wanted, {remember: false})) return;
  }
  const index = hits.findIndex((hit) => pageName(hit) === name);
  if (index >= 0) return open(index, {remember: false});
  closeViewer();
  if (name) say(`The page of this address is not among these. ${summary()}`);
}

function count(n, what) {
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
}

// --- results ---

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

function where(hit) {
  return {picture: "", pdf: `page ${hit.page}`, text: `passage ${hit.page}`}[hit.kind];
}

const score = (hit) => hit.score === null ? "" : hit.score.toFixed(4);

function showResults() {
  $("results").replaceChildren(...hits.map((hit, index) => {
    const card = make("button", "card");
    card.type = "button";
    card.title = hit.path;
    card.addEventListener("click", () => open(index));
    const shot = make("span", "shot");
    shot.append(preview(hit));
    const label = make("span", "label");
    const line = make("span", "facts-line");
    line.append(make("span", "score", score(hit)), make("span", "where", where(hit)));
    label.append(make("span", "name", hit.name), line);
    card.append(shot, label);
    const item = document.createElement("li");
    item.append(card);
    return item;
  }));
  scrollTo(0, 0);
}

function preview(hit) {
  if (hit.problem) return make("span", "problem", hit.problem);
  if (hit.kind === "text") return make("span", "passage", hit.text);
  const image = make("img", "");
  image.alt = "";
  image.loading = "lazy";
  image.draggable = false;
  image.addEventListener("error", async () => {
    image.replaceWith(make("span", "problem", await whyNot(image.src)));
  });
  image.src = pagePath("thumbnail", hit);
  return image;
}

// An <img> does not tell why it failed; the answer's text does.
async function whyNot(path) {
  try {
    await ask(path);
    return "cannot be shown";
  } catch (error) {
    return error.message;
  }
}

// --- one page ---

async function open(index, {remember = true} = {}) {
  await leaving;
  if (index < 0 || index >= hits.length) return;
  shown = index;
  const hit = hits[index];
  if (remember) {
    const isNew = !$("viewer").open;
    remind(isNew ? history.pushState : history.replaceState,
           `${address(query)}#${pageName(hit)}`, query, isNew || history.state?.isPage);
  }
  heating.abort();
  $("viewer-name").textContent = [hit.name, where(hit)].filter(Boolean).join(", ");
  $("previous").disabled = index === 0;
  $("next").disabled = index === hits.length - 1;
  const rank = `rank ${(index + 1).toLocaleString("en")} of ${count(about.pages, "page")}`;
  $("score").textContent = query ? `${score(hit)}, ${rank}` : "";
  $("score").title = query ? `cosine ${hit.cosine.toFixed(4)}` : "";
  $("paths").textContent = hit.paths.join("\n");
  $("problem").hidden = !hit.problem;
  $("problem").textContent = hit.problem || "";
  const isText = hit.kind === "text";
  $("passage").hidden = !isText;
  $("passage").textContent = hit.text;
  $("stage").hidden = true;
  $("page").removeAttribute("src");
  forgetHeat();
  if (!isText) showPicture(hit);
  if (!$("viewer").open) $("viewer").showModal();
  showHeat(hit);
}

function showPicture(hit) {
  const image = $("page");
  image.onload = () => {
    if (hit !== hits[shown]) return;
    $("stage").style.setProperty("--ratio", image.naturalWidth / image.naturalHeight);
    $("stage").hidden = false;
  };
  image.onerror = async () => {
    const why = await whyNot(pagePath("picture", hit));
    if (hit !== hits[shown]) return;
    $("problem").textContent = why;
    $("problem").hidden = false;
  };
  image.alt = `${hit.name} ${where(hit)}`;
  image.src = pagePath("picture", hit);
}

async function showHeat(hit) {
  if (!query) return note(about.heat_maps ? "What matches is drawn here after a search." : "");
  if (hit.kind === "text") return note("Heat maps are drawn over pictures; this is a text.");
  if (!about.heat_maps) {
    return note("No heat map: the model of this index gives one vector per page, none per part.");
  }
  heating = new AbortController();
  const signal = heating.signal;
  const key = pagePath("heat", hit);
  if (!heats.has(key)) {
    note("Reading the page…");
    try {
      const heat = await askByQuery(key, query, signal);
      if (signal.aborted) return;
      heats.set(key, heat);
    } catch (error) {
      if (!signal.aborted) note(`No heat map: ${withName(error.message, query)}`, true);
      return;
    }
  }
  $("layers").hidden = false;
  showTokens(heats.get(key));
  paint();
}

function note(text, isProblem = false) {
  $("note").textContent = text;
  $("note").classList.toggle("problem", isProblem);
}

function forgetHeat() {
  note("");
  $("layers").hidden = true;
  $("tokens").replaceChildren();
  $("cell").hidden = true;
  $("heat").width = $("heat").height = 1;
  $("stage").classList.remove("faded");
}

// One pixel per cell; the browser enlarges it over the page.
function paint() {
  const heat = heats.get(pagePath("heat", hits[shown]));
  const canvas = $("heat");
  for (const button of $("layers").children) {
    button.setAttribute("aria-pressed", button.dataset.layer === layer);
  }
  $("stage").classList.toggle("faded", layer !== "");
  canvas.hidden = layer === "";
  if (layer === "") return note("");
  const [height, width] = heat.grid;
  const values = heat[layer].flat();
  const limit = Math.max(...values.map(Math.abs)) || 1;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  values.forEach((value, index) => {
    const colour = value >= 0 ? RED : BLUE;
    const alpha = Math.round(255 * OPACITY * Math.abs(value) / limit);
    pixels.data.set([...colour, alpha], 4 * index);
  });
  context.putImageData(pixels, 0, 0);
  const range = `${Math.min(...values).toFixed(4)} to ${Math.max(...values).toFixed(4)}`;
  note(layer === "contributions"
    ? `What each part adds to the score, ${range}; ${heat.outside.toFixed(4)} comes from outside `
      + "the picture."
    : `How like the query each part is on average, ${range}.`);
}

function showTokens(heat) {
  const [height, width] = heat.grid;
  // around a picture there are markers alone
  const tokens = query.picture ? [] : heat.tokens.filter((token) => token.text);
  $("tokens").replaceChildren(...tokens.map((token) => {
    const button = make("button", token.cell ? "" : "outside", token.text);
    button.type = "button";
    button.title = `${token.similarity.toFixed(4)}${token.cell ? "" : ", outside the picture"}`;
    const mark = () => {
      $("cell").hidden = !token.cell;
      if (!token.cell) return;
      const [y, x] = token.cell;
      const box = {left: x / width, top: y / height, width: 1 / width, height: 1 / height};
      for (const [side, part] of Object.entries(box)) $("cell").style[side] = `${100 * part}%`;
    };
    button.addEventListener("mouseenter", mark);
    button.addEventListener("focus", mark);
    button.addEventListener("mouseleave", () => { $("cell").hidden = true; });
    button.addEventListener("blur", () => { $("cell").hidden = true; });
    return button;
  }));
}

function chooseLayer(name) {
  layer = name;
  if (!$("layers").hidden) paint();
}

// --- keys ---

function cards() {
  return [...document.querySelectorAll(".card")];
}

// Steps to the card beside, above or below; above the first row is the search box.
function step(key) {
  const all = cards();
  const at = all.indexOf(document.activeElement);
  if (at < 0) return all[0]?.focus();
  const row = all.filter((card) => card.offsetTop === all[0].offsetTop).length;
  const to = at + {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row}[key];
  if (to < 0 && key === "ArrowUp") return $("query").focus();
  all[Math.min(to, all.length - 1)]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target === $("query");
  const isArrow = event.key.startsWith("Arrow");
  if ($("viewer").open) {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (by) open(shown + by);
    else return;
  } else if (event.key === "/" && !isTyping) {
    $("query").focus();
    $("query").select();
  } else if (event.key === "Escape" && !isTyping) {
    $("query").focus();
  } else if (isArrow && hits.length && (!isTyping || event.key === "ArrowDown")) {
    step(event.key);
  } else {
    return;
  }
  event.preventDefault();
});

$("viewer").addEventListener("close", () => {
  heating.abort();
  cards()[shown]?.focus();
  if (isFollowing) {
    isFollowing = false;
  } else if (history.state?.isPage) {
    leaving = new Promise((done) => addEventListener("popstate", done, {once: true}));
    history.back();
  } else {
    remind(history.replaceState, address(query), query);
  }
});
$("viewer").addEventListener("click", (event) => {
  if (event.target === $("viewer")) $("viewer").close();  // beside it
});
$("close").addEventListener("click", () => $("viewer").close());
$("previous").addEventListener("click", () => open(shown - 1));
$("next").addEventListener("click", () => open(shown + 1));
for (const button of $("layers").children) {
  button.addEventListener("click", () => chooseLayer(button.dataset.layer));
}

function closeViewer() {
  if (!$("viewer").open) return;
  isFollowing = true;
  $("viewer").close();
}

// --- what is given ---

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  searchText($("query").value);
});
$("chip-remove").addEventListener("click", () => {
  searchText("");
  $("query").focus();
});
$("choose").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  if ($("file").files.length) searchPicture($("file").files[0]);
  $("file").value = "";
});

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
let depth = 0;  // dragenter and dragleave come for each element below too
document.addEventListener("dragenter", (event) => {
  if (hasFiles(event)) $("drop").hidden = ++depth === 0;
});
document.addEventListener("dragleave", (event) => {
  if (hasFiles(event)) $("drop").hidden = --depth === 0;
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  depth = 0;
  $("drop").hidden = true;
  if ($("viewer").open) $("viewer").close();
  if (event.dataTransfer.files.length) searchPicture(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => {
  if (!event.clipboardData.files.length) return;
  if ($("viewer").open) $("viewer").close();
  searchPicture(event.clipboardData.files[0]);
});
addEventListener("popstate", follow);

async function start() {
  await follow();
  if (about) $("choose").hidden = !about.pictures;
}

start();
