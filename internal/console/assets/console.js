// Live numbers and the live picture, times in the form that a visitor chooses, and keys. Every page says the same without this script, as of the moment in which it was asked for.

const SVG = 'http://www.w3.org/2000/svg';
const SECONDS = 60;
const BINS = SECONDS * 10; // of 100 ms

function svg(name, attributes = {}) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// A browser has six connections to a server of HTTP/1.1, and a seventh page would wait for one. So of the pages that are seen at most four have a
// stream: the oldest one gives way, and its button asks for it again. Pages tell each other by a channel of their origin.
const STREAMS = 4;
const old = performance.getEntriesByType('navigation')[0]?.nextHopProtocol === 'http/1.1';
const channel = old && 'BroadcastChannel' in window ? new BroadcastChannel('tundish-streams') : null;

// The stream of a page: it is closed while the page is hidden, and begins again by itself.
function listen(query, hear) {
  const away = document.createElement('p');
  away.className = 'away';
  away.setAttribute('role', 'alert');
  away.hidden = true;
  away.textContent = 'The live numbers have stopped: the server does not answer, or the login has ended.';
  document.body.prepend(away);
  let source = null;
  let last = Date.now();
  let hasSecond = false; // until the first second all processes learn that somebody looks
  const id = String(Math.random());
  const newer = new Set(); // pages that opened theirs after this one
  const open = () => {
    if (source || document.hidden || paused) return;
    newer.clear();
    channel?.postMessage({ open: id });
    source = new EventSource(new URL(root() + 'stream' + query, location.href));
    source.addEventListener('second', (event) => {
      last = Date.now();
      hasSecond = true;
      away.hidden = true;
      hear(JSON.parse(event.data));
    });
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) close(), setTimeout(open, 3000);
    };
    last = Date.now();
    hasSecond = false;
  };
  const close = () => {
    if (source) channel?.postMessage({ close: id });
    source?.close();
    source = null;
  };
  let paused = false;
  channel?.addEventListener('message', ({ data }) => {
    if (data.open) newer.add(data.open); else newer.delete(data.close);
    if (source && newer.size >= STREAMS) control.giveWay();
  });
  addEventListener('pagehide', close);
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  setInterval(() => { away.hidden = paused || document.hidden || Date.now() - last < (hasSecond ? 2300 : 9000); }, 250);
  const control = { pause: (stop) => { paused = stop; stop ? close() : open(); }, giveWay: () => control.pause(true) };
  open();
  return control;
}

// The way to the first page, as the server wrote it: a proxy may have the console below any prefix.
function root() {
  return document.querySelector('link[rel="stylesheet"]').getAttribute('href').replace(/assets\/.*$/, '');
}

function stopButton(control) {
  const button = document.createElement('button');
  button.type = 'button';
  const show = (stopped, why) => {
    button.setAttribute('aria-pressed', String(stopped));
    button.textContent = (stopped ? 'Go on with live updates' : 'Stop live updates') + why;
    control.pause(stopped);
  };
  button.textContent = 'Stop live updates';
  button.setAttribute('aria-pressed', 'false');
  button.dataset.stop = '';
  button.addEventListener('click', () => show(button.getAttribute('aria-pressed') === 'false', ''));
  control.giveWay = () => show(true, `, which ${STREAMS} other windows have`);
  return button;
}

// The overview: what left each bucket in the last ten seconds.
function live(table) {
  const rows = new Map();
  for (const row of table.querySelectorAll('[data-bucket]')) rows.set(row.dataset.bucket, { cell: row.querySelector('[data-seen]'), seconds: [] });
  table.closest('.wide').before(stopButton(listen('', (second) => {
    for (const [name, row] of rows) {
      row.seconds.push(second.buckets?.[name]?.departed ?? 0);
      if (row.seconds.length > 10) row.seconds.shift();
      const sum = row.seconds.reduce((a, b) => a + b, 0);
      if (row.seconds.length > 4) row.cell.textContent = Number((sum / row.seconds.length).toFixed(1)) + '/s';
    }
  })));
}

// A bucket: arrivals up, departures down, a line at the rate, for the last minute in 100 ms each.
function picture(figure) {
  const perBin = Number(figure.dataset.rate) / 10;
  const arrived = new Array(BINS).fill(0);
  const departed = new Array(BINS).fill(0);
  let newest = 0;
  const drawing = svg('svg', { class: 'picture', viewBox: `0 0 ${BINS} 200`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'arrivals above, departures below, in the last minute' });
  const paths = { in: svg('path', { class: 'in' }), out: svg('path', { class: 'out' }) };
  const limit = svg('line', { class: 'limit', x1: 0, x2: BINS });
  drawing.append(paths.in, paths.out, svg('line', { class: 'axis', x1: 0, x2: BINS, y1: 100, y2: 100 }), limit);
  const caption = figure.querySelector('figcaption');
  const columns = (counts, most, y, sign) => {
    let d = '';
    counts.forEach((n, i) => {
      if (n > 0) d += `M${i} ${y}h1v${(sign * n / most * 95).toFixed(1)}h-1z`;
    });
    return d;
  };
  const begin = () => {
    figure.querySelector('.spark')?.replaceWith(drawing);
  };
  const control = listen('?bucket=' + encodeURIComponent(figure.dataset.picture), (second) => {
    if (second.reporting < second.processes && !drawing.isConnected) {
      caption.textContent = 'The live picture begins within six seconds.';
      return;
    }
    begin();
    for (const bin of second.bins ?? []) {
      const number = Math.round(bin.at / 100);
      if (newest === 0) newest = number;
      for (; newest < number; newest++) {
        arrived.shift(); arrived.push(0);
        departed.shift(); departed.push(0);
      }
      const at = BINS - 1 - (newest - number);
      if (at < 0) continue;
      arrived[at] += bin.arrived ?? 0;
      departed[at] += bin.departed ?? 0;
    }
    const most = Math.max(1, perBin * 2, ...departed);
    const mostIn = Math.max(1, ...arrived);
    paths.in.setAttribute('d', columns(arrived, mostIn, 100, -1));
    paths.out.setAttribute('d', columns(departed, most, 100, 1));
    const y = 100 + Math.min(perBin / most, 1) * 95;
    limit.setAttribute('y1', y);
    limit.setAttribute('y2', y);
    let inSecond = 0;
    for (let i = 0; i + 10 <= BINS; i++) inSecond = Math.max(inSecond, departed.slice(i, i + 10).reduce((a, b) => a + b, 0));
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    caption.textContent = `The last minute: ${sum(arrived)} arrived (above; at most ${mostIn === 1 && sum(arrived) === 0 ? 0 : mostIn} in 100 ms), ${sum(departed)} departed (below; at most ${inSecond} in any second). The dashed line is the rate.`;
  });
  figure.after(stopButton(control));
}

for (const table of document.querySelectorAll('[data-live]')) live(table);
for (const figure of document.querySelectorAll('[data-picture]')) picture(figure);

// A change of many in steps: the page makes one after the other until it is left, closed, or a step fails.
async function goOn(form) {
  const said = document.querySelector('.said');
  for (;;) {
    const answer = await fetch(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form)), headers: { Accept: 'application/json' } }).catch(() => null);
    if (!answer?.ok) {
      said.textContent += ' The last step failed: go on, or look at the audit.';
      return;
    }
    const step = await answer.json();
    said.textContent = step.said;
    for (const name of ['cursor', 'part', 'done', 'looked']) form.elements[name].value = step[name];
    if (!step.cursor) {
      form.remove();
      return;
    }
    await new Promise((next) => setTimeout(next, step.waiting ? 1000 : 50));
  }
}
for (const form of document.querySelectorAll('form[data-run]')) goOn(form);

// What a visitor has chosen stays in the browser, where it has room for it.
const kept = {
  get: (name) => { try { return localStorage.getItem('tundish-' + name); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem('tundish-' + name, value); } catch { /* it holds for this page alone */ } },
};

// The time by the server's clock: that of the browser may be minutes off.
const pageMade = Date.parse(document.querySelector('footer').dataset.now);
const pageCame = performance.getEntriesByType('navigation')[0]?.responseStart ?? performance.now();
const serverNow = () => pageMade + performance.now() - pageCame;

const TIMES = { page: 'as the page has them', utc: 'UTC', local: 'local', relative: 'relative' };

// As the server writes a span: in two units at most.
function span(seconds) {
  const [small, large] = seconds < 60 ? [null, [1, 's']] : seconds < 3600 ? [[1, 's'], [60, 'm']] : seconds < 86400 ? [[60, 'm'], [3600, 'h']] : [[3600, 'h'], [86400, 'd']];
  const rest = small ? Math.floor(seconds % large[0] / small[0]) : 0;
  return Math.floor(seconds / large[0]) + large[1] + (rest > 0 ? rest + small[1] : '');
}

function relative(at) {
  const seconds = Math.round((at - serverNow()) / 1000);
  if (seconds === 0) return 'now';
  return seconds > 0 ? 'in ' + span(seconds) : span(-seconds) + ' ago';
}

const utc = (at) => new Date(at).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';

function local(at) {
  const date = new Date(at);
  const zone = new Intl.DateTimeFormat('en', { timeZoneName: 'short' }).formatToParts(date).find((part) => part.type === 'timeZoneName');
  return date.toLocaleString('sv-SE') + ' ' + (zone?.value ?? '');
}

// All times of a page, in the form that the visitor has chosen. The choice is a field of the footer.
function switchTimes() {
  const times = [];
  for (const node of document.querySelectorAll('time')) {
    const at = Date.parse(node.dateTime);
    if (!Number.isNaN(at)) times.push({ node, at, form: node.textContent.endsWith('UTC') ? 'utc' : 'relative', fixed: node.closest('footer') !== null });
  }
  const forms = { utc, local, relative };
  let chosen = kept.get('times');
  if (!(chosen in TIMES)) chosen = 'page';
  const show = () => {
    for (const { node, at, form, fixed } of times) {
      const text = forms[chosen === 'page' || (fixed && chosen === 'relative') ? form : chosen](at);
      if (node.textContent !== text) node.textContent = text;
    }
  };
  const label = document.createElement('label');
  const select = document.createElement('select');
  for (const [value, text] of Object.entries(TIMES)) select.add(new Option(text, value, false, value === chosen));
  const choose = (value) => {
    select.value = chosen = value;
    kept.set('times', value);
    show();
  };
  select.addEventListener('change', () => choose(select.value));
  label.append('Times ', select);
  document.querySelector('footer').append(label);
  setInterval(() => { if (!document.hidden) show(); }, 1000);
  show();
  return () => {
    const all = Object.keys(TIMES);
    choose(all[(all.indexOf(chosen) + 1) % all.length]);
  };
}

// The keys, the list of them, and a way to switch them off, for those who speak to their computer.
function keys(actions) {
  const dialog = document.getElementById('keys');
  let on = kept.get('keys') !== 'off';
  const open = document.createElement('button');
  open.type = 'button';
  open.textContent = 'Keyboard';
  open.addEventListener('click', () => dialog.showModal());
  document.querySelector('footer').append(' ', open);
  const label = document.createElement('label');
  const box = document.createElement('input');
  box.type = 'checkbox';
  box.checked = on;
  box.addEventListener('change', () => {
    on = box.checked;
    kept.set('keys', on ? 'on' : 'off');
  });
  label.append(box, ' Keys do this');
  dialog.querySelector('form').prepend(label);
  actions['?'] = () => dialog.showModal();
  document.addEventListener('keydown', (event) => {
    const action = actions[event.key];
    if (!action || !on || dialog.open || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, select, textarea')) return;
    event.preventDefault();
    action();
  });
}

keys({
  '/': () => document.getElementById('search')?.focus(),
  t: switchTimes(),
  s: () => document.querySelector('[data-stop]')?.click(),
});
