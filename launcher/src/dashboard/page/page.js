// The page: takes the launcher's stream, and shows it.

const $ = (id) => document.getElementById(id);
const STATES = ['started', 'running', 'done', 'failed'];
const PHASES = ['compute', 'data', 'communication', 'optimizer', 'checkpoint'];
const PAGE = 64;

const charts = new Charts($('charts'));
const ranks = new Map();
const cells = new Map();
let devices = [];
let job = {};
let chosen = null;
let from = 0;
let stopping = false;
let over = false;

const mib = (value) => (value >= 10240 ? `${(value / 1024).toFixed(1)} GiB` : `${value} MiB`);

function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

function notice(text) {
  $('notice').hidden = !text;
  $('notice').textContent = text || '';
}

// Rows of a rank: see rows.rs.
function toRank([rank, state, slow, doing, rest]) {
  const [host, device, behind, cpu, resident, tensors, peak, waits, since, gpu, total] = rest;
  return { rank, state: STATES[state], slow: !!slow, doing, host, device, behind, cpu, resident, tensors, peak, waits, since, gpu, total };
}

function stateOf(line) {
  if (line.state === 'running' && line.slow) return 'running, slow';
  if (line.state === 'running' && line.doing) return `in ${line.doing} for ${lasting(line.since)}`;
  return line.state;
}

function showJob(message) {
  job = message.job;
  stopping = job.state === 'stopping' || job.state === 'failing';
  over = job.state === 'ended';
  $('title').textContent = job.program.split('/').pop() || 'torchrs';
  $('title').title = [job.program, ...job.arguments].join(' ');
  document.title = `${job.state} · ${$('title').textContent}`;
  const text = over ? (job.exit_code === 0 ? 'done' : `ended with exit code ${job.exit_code}`) : job.state;
  $('state').textContent = text;
  $('state').className = `pill ${over ? (job.exit_code === 0 ? 'running' : 'failing') : job.state}`;
  const facts = [`run ${job.run_id.slice(0, 24)}`, `${job.world_size} rank${job.world_size === 1 ? '' : 's'}`];
  if (job.hosts > 1) facts.push(`${job.hosts} hosts`);
  if (job.leader && job.leader !== job.host) facts.push(`led by ${job.leader}`);
  facts.push(`for ${lasting((message.at_ms - job.started_ms) / 1000)}`);
  if (job.restarts || job.max_restarts) facts.push(`${job.restarts} of ${job.max_restarts} restarts`);
  if (job.simulated_gpus) facts.push('simulated GPUs: speeds mean nothing');
  $('facts').textContent = facts.join(' · ');
  $('save').disabled = !job.can_save || stopping || over;
  $('save').title = job.can_save ? 'SIGUSR1: the program saves and ends' : 'the program does not handle SIGUSR1';
  $('stop').disabled = over;
  $('stop').textContent = stopping ? 'Kill now' : 'Stop';
}

function showTiles(message) {
  const tiles = message.speed.step ? [['step', 0, String(message.speed.step)]] : [];
  const scalars = message.scalars.map((s) => [s.name, number(s.value)]);
  const first = (part) => scalars.filter(([name]) => group(name) === part);
  for (const part of ['loss', 'accuracy', 'learning rate']) tiles.push(...first(part).slice(0, 3));
  const { speed, checkpoint } = message;
  const add = (name, value, text) => {
    if (value !== null && value !== undefined && value !== 0) tiles.push([name, value, text]);
  };
  add('steps/s', speed.steps_per_s);
  add('samples/s', speed.samples_per_s);
  add('tokens/s', speed.tokens_per_s);
  add('TFLOP/s', speed.flops_per_s && speed.flops_per_s / 1e12);
  add('MFU', speed.mfu, speed.mfu && `${(100 * speed.mfu).toFixed(1)}%`);
  if (checkpoint) tiles.push([`checkpoint, step ${checkpoint.step}`, 0, `${lasting((message.at_ms - checkpoint.at_ms) / 1000)} ago`]);
  for (const [name, value] of scalars) {
    if (tiles.length >= 16) break;
    if (!tiles.some((tile) => tile[0] === name)) tiles.push([name, value]);
  }
  $('tiles').replaceChildren(...tiles.map(([name, value, text]) => {
    const tile = make('div', 'tile');
    tile.append(make('b', '', text ?? brief(value)), make('span', '', name));
    return tile;
  }));
}

function showTime(time) {
  $('time').hidden = !time;
  if (!time) return;
  const parts = PHASES.map((name) => [name, time[name]]);
  const bar = $('bar');
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
  if (bar.children.length !== parts.length) bar.replaceChildren(...parts.map(([name]) => make('i', name)));
  parts.forEach(([, share], at) => (bar.children[at].style.width = `${100 * share}%`));
  bar.setAttribute('aria-label', parts.map(([name, share]) => `${name} ${percent(share)}`).join(', '));
  $('shares').replaceChildren(...parts.filter(([, share]) => share > 0).map(([name, share]) => {
    const item = make('li');
    item.append(make('i', name), document.createTextNode(`${name} ${percent(share)}`));
    return item;
  }));
}

function showCell(line) {
  let cell = cells.get(line.rank);
  if (!cell) {
    cell = make('div', 'cell');
    cell.id = `rank-${line.rank}`;
    cell.setAttribute('role', 'option');
    cell.dataset.rank = line.rank;
    cells.set(line.rank, cell);
    // Mostly they come in order.
    const last = $('grid').lastChild;
    const next = last && Number(last.dataset.rank) > line.rank
      ? [...$('grid').children].find((other) => Number(other.dataset.rank) > line.rank)
      : null;
    $('grid').insertBefore(cell, next);
  }
  const words = [line.state];
  if (line.slow) words.push('slow');
  else if (line.doing) words.push('busy');
  if (line.rank === chosen) words.push('chosen');
  cell.className = `cell ${words.join(' ')}`;
  const mark = line.state === 'failed' ? '×' : line.slow ? '!' : line.state === 'done' ? '✓' : '';
  const few = ranks.size <= 64;
  cell.textContent = few ? `${line.rank}${mark}` : mark;
  cell.title = `rank ${line.rank}: ${stateOf(line)}`;
  cell.setAttribute('aria-label', cell.title);
  cell.setAttribute('aria-selected', line.rank === chosen);
}

function showRanks(message) {
  if (message.ranks < ranks.size) {
    for (const rank of [...ranks.keys()].filter((rank) => rank >= message.ranks)) {
      ranks.delete(rank);
      cells.get(rank)?.remove();
      cells.delete(rank);
    }
  }
  const few = ranks.size <= 64;
  devices = message.devices;
  const lines = message.rows.map(toRank);
  for (const line of lines) ranks.set(line.rank, line);
  $('grid').classList.toggle('few', message.ranks <= 64);
  $('grid').classList.toggle('many', message.ranks > 400);
  if (few !== ranks.size <= 64) ranks.forEach(showCell);
  else lines.forEach(showCell);
  const [started, running, done, failed] = message.states;
  const parts = [[running, 'running'], [started, 'started'], [done, 'done'], [failed, 'failed'], [message.slow, 'slow']];
  $('counts').textContent = parts.filter(([count]) => count).map(([count, name]) => `${count} ${name}`).join(' · ');
  if (chosen === null && ranks.size) choose(Math.min(...ranks.keys()));
  showTable(message.hosts);
}

let hosts = [];
function showTable(list) {
  if (list) hosts = list;
  const needs = (line) => line.state === 'failed' || line.slow || line.since >= 10 || line.behind > 1;
  let lines = [...ranks.values()].sort((a, b) => a.rank - b.rank);
  if ($('attention').checked) lines = lines.filter(needs);
  from = Math.max(0, Math.min(from, lines.length - 1 - ((lines.length - 1) % PAGE)));
  const page = lines.slice(from, from + PAGE);
  $('pager').hidden = lines.length <= PAGE;
  $('shown').textContent = `${from + 1} to ${from + page.length} of ${lines.length}`;
  const gpus = [...ranks.values()].some((line) => line.gpu !== null);
  document.querySelector('th.host').hidden = hosts.length < 2;
  document.querySelector('th.gpu').hidden = !gpus;
  $('rows').replaceChildren(...page.map((line) => {
    const row = make('tr', line.rank === chosen ? 'chosen' : '');
    row.dataset.rank = line.rank;
    const host = make('td', 'host', hosts[line.host]?.name ?? '');
    host.hidden = hosts.length < 2;
    const most = line.total ? ` of ${mib(line.total)}` : '';
    const tensors = line.peak ? `${mib(line.tensors)} / ${mib(line.peak)}${most}` : '';
    const gpu = make('td', 'num gpu', line.gpu === null ? '' : `${line.gpu}%`);
    gpu.hidden = !gpus;
    row.append(
      make('td', '', line.rank), host,
      make('td', line.slow ? 'slow' : line.state, stateOf(line)),
      make('td', '', devices[line.device] ?? ''),
      make('td', 'num', line.resident ? mib(line.resident) : ''),
      make('td', 'num tensors', tensors),
      make('td', 'num', line.resident ? `${line.cpu}%` : ''), gpu,
      make('td', 'num waits', line.state === 'running' ? `${line.waits}%` : ''),
      make('td', 'num lag', line.behind || ''),
    );
    return row;
  }));
}

function showHosts(list) {
  $('hosts-part').hidden = !list.length;
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);
  $('hosts').replaceChildren(...list.map((host) => {
    const last = host.first_rank + host.ranks - 1;
    const silent = host.silent_s > 5 ? ` · silent for ${lasting(host.silent_s)}` : '';
    const which = host.ranks === 1 ? `rank ${host.first_rank}` : `ranks ${host.first_rank} to ${last}`;
    return make('li', '', `${host.name}: ${which} · load ${host.load} on ${host.cores} cores · ${gib(host.memory_used)} of ${gib(host.memory_total)} GiB used${silent}`);
  }));
}

const told = new Set();
function showEvents(list) {
  for (const event of list) {
    if (told.has(event.number)) continue;
    told.add(event.number);
    const kind = event.event.kind;
    // Checkpoints one after the other are one line.
    const top = $('events').firstChild;
    if ((kind === 'checkpoint' || kind === 'others_ended') && top?.dataset.kind === kind) top.remove();
    const item = make('li', event.level);
    item.dataset.kind = kind;
    const time = make('time', '', new Date(event.at_ms).toLocaleTimeString());
    time.dateTime = new Date(event.at_ms).toISOString();
    item.append(time, make('span', '', event.text));
    $('events').prepend(item);
    while ($('events').children.length > 256) $('events').lastChild.remove();
  }
}

function choose(rank) {
  const before = ranks.get(chosen);
  chosen = rank;
  if (before) showCell(before);
  if (ranks.has(rank)) showCell(ranks.get(rank));
  $('grid').setAttribute('aria-activedescendant', `rank-${rank}`);
  $('log-title').textContent = `Output of rank ${rank}`;
  showTable();
  showOutput();
}

async function showOutput() {
  if (chosen === null) return;
  const rank = chosen;
  let answer;
  try {
    answer = await fetch(`/rank/${rank}`);
    if (!answer.ok || rank !== chosen) return;
    answer = await answer.json();
  } catch {
    return;
  }
  if (rank !== chosen) return;
  const { line, host, log } = answer;
  const facts = [`pid ${line.pid} on ${host ?? '?'}`];
  if (line.how) facts.push(line.how);
  else facts.push(stateOf({ ...line, since: line.doing_s }));
  if (line.steps_per_s) facts.push(`${brief(line.steps_per_s)} steps/s`);
  if (line.samples_per_s) facts.push(`${brief(line.samples_per_s)} samples/s`);
  if (line.time) facts.push(`compute ${Math.round(100 * line.time.compute)}%, data ${Math.round(100 * line.time.data)}%, communication ${Math.round(100 * line.time.communication)}%`);
  $('detail').textContent = facts.join(' · ');
  const pane = $('log');
  const ends = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 30;
  const text = log === null ? 'Its output is on its own host.' : log || (job.world_size === 1 ? 'Nothing yet, or it has the terminal to itself.' : 'Nothing yet.');
  if (pane.textContent !== text) {
    pane.textContent = text;
    if (ends) pane.scrollTop = pane.scrollHeight;
  }
}

function take(message) {
  showJob(message);
  showTiles(message);
  showTime(message.time);
  showRanks(message);
  showHosts(message.hosts);
  showEvents(message.events);
  if (message.history) charts.reset(message.history);
  else charts.add(message.points);
}

// Buttons: what a signal to the launcher does.

let wanted = null;
function ask(path, text, yes) {
  wanted = path;
  $('sure-text').textContent = text;
  $('sure-yes').textContent = yes;
  $('sure').showModal();
}
$('stop').addEventListener('click', () => {
  if (stopping) ask('/stop', 'Kill all workers at once? What they have not saved is lost.', 'Kill now');
  else ask('/stop', 'Ask all workers to end, as Ctrl-C in the launcher’s terminal does?', 'Stop');
});
$('save').addEventListener('click', () => ask('/save', 'Ask the program to save a checkpoint and end (SIGUSR1)?', 'Save and stop'));
$('sure-no').addEventListener('click', () => $('sure').close());
$('sure-yes').addEventListener('click', async () => {
  $('sure').close();
  try {
    const answer = await fetch(wanted, { method: 'POST' });
    notice(answer.ok ? '' : (await answer.text()).trim());
  } catch {
    notice('The launcher does not answer.');
  }
});

// Choosing a rank.

$('grid').addEventListener('click', (event) => {
  const rank = event.target.dataset.rank;
  if (rank !== undefined) choose(Number(rank));
});
$('grid').addEventListener('keydown', (event) => {
  const across = Math.max(1, Math.round($('grid').clientWidth / ((cells.get(chosen)?.offsetWidth || 20) + 3)));
  const last = Math.max(...ranks.keys());
  const to = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, ArrowDown: chosen + across, ArrowUp: chosen - across, Home: Math.min(...ranks.keys()), End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  if (ranks.has(to)) choose(to);
  cells.get(chosen)?.scrollIntoView({ block: 'nearest' });
});
$('rows').addEventListener('click', (event) => {
  const row = event.target.closest('tr');
  if (row) choose(Number(row.dataset.rank));
});
$('attention').addEventListener('change', () => showTable());
$('before').addEventListener('click', () => { from -= PAGE; showTable(); });
$('after').addEventListener('click', () => { from += PAGE; showTable(); });

// The stream. A browser goes on trying by itself; what it missed comes again.

const source = new EventSource('/events');
source.addEventListener('all', (event) => {
  notice('');
  take(JSON.parse(event.data));
});
source.addEventListener('news', (event) => take(JSON.parse(event.data)));
// The launcher is about to end: nothing more can be asked.
source.addEventListener('end', () => source.close());
source.addEventListener('error', () => {
  if (!over) notice('The launcher does not answer; trying again.');
});
setInterval(() => { if (!over && !document.hidden) showOutput(); }, 2000);
