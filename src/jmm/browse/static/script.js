"use strict";

const $ = (id) => document.getElementById(id);

// Colours and strengths are those of `jmm heatmap`: red above 0, blue below.
const RED = [220, 0, 0], BLUE = [0, 60, 220], OPACITY = 0.8;

let about = null;
let query = null;          // a text, or a Blob that holds a picture
let hits = [];
let shown = -1;            // index of the hit in the viewer
let layer = "contributions";
let searching = new AbortController();
let heating = new AbortController();
const heats = new Map();   // of the present query, by page

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

function askByQuery(path, signal) {
  const isPicture = query instanceof Blob;
  const kind = query.type?.startsWith("image/") ? query.type : "application/octet-stream";
  return ask(path, {
    method: "POST",
    signal,
    headers: {"Content-Type": isPicture ? kind : "application/json"},
    body: isPicture ? query : JSON.stringify({query}),
  });
}

const pagePath = (kind, hit) => `/${kind}/${hit.content}/${hit.page}`;

function say(text, isProblem = false) {
  $("status").textContent = text;
  $("status").classList.toggle("problem", isProblem);
}

// --- searching ---

async function search() {
  searching.abort();
  searching = new AbortController();
  const signal = searching.signal;
  heats.clear();
  say("Searching…");
  try {
    const found = await askByQuery("/search", signal);
    if (signal.aborted) return;
    hits = found.hits;
    showResults();
    say(hits.length ? count(hits.length, "page") + ", best first"
                    : "Nothing found: the index has no pages. `jmm index` adds some.");
  } catch (error) {
    if (signal.aborted) return;
    hits = [];
    showResults();
    takePicture(null);
    say(error.message, true);
  }
}

function searchText(text, remember = true) {
  text = text.trim();
  if (!text) return;
  takePicture(null);
  query = text;
  document.title = `${text} – jmm`;
  if (remember) history.pushState(null, "", `/?q=${encodeURIComponent(text)}`);
  search();
}

async function searchPicture(file) {
  if (!about?.pictures) return say("The model of this index reads no pictures.", true);
  if (file.size > about.most_picture_bytes) {
    return say(`${file.name} is larger than ${about.most_picture_bytes / 2 ** 20} MiB.`, true);
  }
  try {
    // a copy: the file may change before the heat maps are asked for
    query = new Blob([await file.arrayBuffer()], {type: file.type});
  } catch {
    return say(`${file.name} cannot be read.`, true);
  }
  $("query").value = "";
  document.title = "jmm";
  history.pushState(null, "", "/");
  takePicture(query, file.name);
  search();
}

function takePicture(blob, name = "") {
  const image = $("chip-picture");
  URL.revokeObjectURL(image.src);
  $("chip").hidden = !blob;
  $("chip-name").textContent = name;
  $("chip-name").hidden = true;
  image.hidden = false;
  if (blob) image.src = URL.createObjectURL(blob);
  else image.removeAttribute("src");
}

// The model's side reads more kinds of files than a browser shows.
$("chip-picture").addEventListener("error", () => {
  $("chip-picture").hidden = true;
  $("chip-name").hidden = false;
});

function clear() {
  searching.abort();
  query = null;
  hits = [];
  takePicture(null);
  showResults();
  greet();
}

function fromAddress() {
  if ($("viewer").open) $("viewer").close();
  const text = new URLSearchParams(location.search).get("q") || "";
  $("query").value = text;
  if (text) searchText(text, false);
  else clear();
}

function greet() {
  const how = about.pictures ? "Type, or drop a picture." : "Type to search.";
  say(about.pages ? `${count(about.pages, "page")} in ${about.folder}. ${how}`
                  : `${about.folder} has no pages yet. \`jmm index\` adds some.`);
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
    line.append(make("span", "score", hit.score.toFixed(4)), make("span", "where", where(hit)));
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

function open(index) {
  if (index < 0 || index >= hits.length) return;
  shown = index;
  const hit = hits[index];
  heating.abort();
  $("viewer-name").textContent = [hit.name, where(hit)].filter(Boolean).join(", ");
  $("previous").disabled = index === 0;
  $("next").disabled = index === hits.length - 1;
  $("score").textContent = `${hit.score.toFixed(4)}, rank ${index + 1} of ${hits.length}`;
  $("score").title = `cosine ${hit.cosine.toFixed(4)}`;
  $("paths").textContent = hit.paths.join("\n");
  $("problem").hidden = !hit.problem;
  $("problem").textContent = hit.problem || "";
  const isText = hit.kind === "text";
  $("passage").hidden = !isText;
  $("passage").textContent = hit.text;
  $("stage").hidden = true;
  forgetHeat();
  if (!isText) showPicture(hit);
  if (!$("viewer").open) $("viewer").showModal();
  showHeat(hit);
}

function showPicture(hit) {
  const image = $("page");
  image.onload = () => {
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
      const heat = await askByQuery(key, signal);
      if (signal.aborted) return;
      heats.set(key, heat);
    } catch (error) {
      if (!signal.aborted) note(`No heat map: ${error.message}`, true);
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
  const tokens = heat.tokens.filter((token) => token.text);
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

// --- what is given ---

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("query").value.trim()) searchText($("query").value);
});
$("chip-remove").addEventListener("click", () => {
  clear();
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
  if (event.clipboardData.files.length) searchPicture(event.clipboardData.files[0]);
});
addEventListener("popstate", fromAddress);

async function start() {
  try {
    about = await ask("/about");
  } catch (error) {
    return say(error.message, true);
  }
  $("choose").hidden = !about.pictures;
  fromAddress();
}

start();
