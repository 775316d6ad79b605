'use strict';
// Charts: numbers over steps, as paths of SVG.

const SVG = 'http://www.w3.org/2000/svg';

function make(name, classes, text) {
  const element = document.createElement(name);
  if (classes) element.className = classes;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A number as JSON has it, infinities as words. */
const number = (value) => (typeof value === 'number' ? value : value === 'Infinity' ? Infinity : value === '-Infinity' ? -Infinity : NaN);

/** A number in few letters. */
function brief(value) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  if (size >= 1e6) return (value / 1e6).toFixed(2) + ' M';
  if (size >= 1e4) return Math.round(value / 100) / 10 + ' k';
  return Number.isInteger(value) ? String(value) : value.toPrecision(size >= 1000 ? 5 : 4);
}

/** Which numbers share a chart. */
function group(name) {
  const last = name.split('/').pop().toLowerCase();
  if (last.includes('loss')) return 'loss';
  if (last.includes('acc')) return 'accuracy';
  if (last === 'lr' || last.includes('learning_rate')) return 'learning rate';
  return name;
}

const ORDER = ['loss', 'accuracy', 'learning rate', 'samples/s', 'tokens/s', 'mfu'];
const CHARTS = 12;
const LINES = 4;

class Charts {
  constructor(place) {
    this.place = place;
    this.series = new Map();
    this.charts = new Map();
  }

  /** All points, after the page has begun or missed some. */
  reset(history) {
    this.series = new Map(Object.entries(history));
    this.draw();
  }

  /** New points, by name. */
  add(points) {
    for (const [name, more] of Object.entries(points)) {
      const all = this.series.get(name) ?? [];
      for (const point of more) {
        while (all.length && all[all.length - 1][0] >= point[0]) all.pop();
        all.push(point);
      }
      // The launcher keeps some hundred points; a page that stays open keeps a few more.
      if (all.length > 2000) this.series.set(name, all.filter((_, at) => at % 2 === 0));
      else this.series.set(name, all);
    }
    if (Object.keys(points).length) this.draw();
  }

  draw() {
    const groups = new Map();
    for (const [name, points] of this.series) {
      if (name === 'epoch' || points.length < 2) continue;
      const key = group(name);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push([name, points]);
    }
    const place = (key) => (ORDER.includes(key) ? ORDER.indexOf(key) : ORDER.length);
    const keys = [...groups.keys()].sort((a, b) => place(a) - place(b)).slice(0, CHARTS);
    for (const key of keys) {
      let chart = this.charts.get(key);
      if (!chart) {
        chart = new Chart(key);
        this.charts.set(key, chart);
        const after = keys.slice(keys.indexOf(key) + 1).map((k) => this.charts.get(k)).find(Boolean);
        this.place.insertBefore(chart.element, after ? after.element : null);
      }
      chart.draw(groups.get(key).slice(0, LINES));
    }
  }
}

class Chart {
  constructor(title) {
    this.title = title;
    this.element = make('div', 'chart');
    this.head = make('h3');
    this.svg = document.createElementNS(SVG, 'svg');
    this.svg.setAttribute('viewBox', '0 0 100 100');
    this.svg.setAttribute('preserveAspectRatio', 'none');
    this.svg.setAttribute('role', 'img');
    this.ends = make('div', 'ends');
    this.element.append(this.head, this.svg, this.ends);
    this.at = null;
    this.svg.addEventListener('pointermove', (event) => {
      const box = this.svg.getBoundingClientRect();
      this.at = (event.clientX - box.left) / box.width;
      this.show();
    });
    this.svg.addEventListener('pointerleave', () => {
      this.at = null;
      this.show();
    });
  }

  draw(lines) {
    this.lines = lines.map(([name, points]) => [name, points.map(([step, value]) => [step, number(value)])]);
    const finite = this.lines.flatMap(([, points]) => points.filter((p) => Number.isFinite(p[1])));
    const steps = this.lines.flatMap(([, points]) => points.map((p) => p[0]));
    const span = (all) => all.reduce(([least, most], n) => [Math.min(least, n), Math.max(most, n)], [Infinity, -Infinity]);
    this.x = span(steps);
    this.y = finite.length ? span(finite.map((p) => p[1])) : [0, 1];
    const [left, width] = [this.x[0], this.x[1] - this.x[0] || 1];
    const [low, height] = [this.y[0], this.y[1] - this.y[0] || 1];
    this.svg.replaceChildren();
    for (const y of [4, 50, 96]) this.rule(0, y, 100, y);
    this.lines.forEach(([, points], at) => {
      const path = document.createElementNS(SVG, 'path');
      let text = '';
      let draws = false;
      for (const [step, value] of points) {
        if (Number.isFinite(value)) {
          const x = ((step - left) / width) * 100;
          const y = 96 - ((value - low) / height) * 92;
          text += `${draws ? 'L' : 'M'}${x.toFixed(2)} ${y.toFixed(2)}`;
        }
        draws = Number.isFinite(value);
      }
      path.setAttribute('d', text);
      path.setAttribute('class', `s${at}`);
      this.svg.append(path);
    });
    this.show();
  }

  rule(x1, y1, x2, y2, kind) {
    const line = document.createElementNS(SVG, 'line');
    for (const [name, value] of Object.entries({ x1, y1, x2, y2 })) line.setAttribute(name, value);
    if (kind) line.setAttribute('class', kind);
    this.svg.append(line);
    return line;
  }

  /** The head: the last numbers, or those under the pointer. */
  show() {
    const [left, width] = [this.x[0], this.x[1] - this.x[0]];
    const step = this.at === null ? this.x[1] : left + this.at * width;
    const near = (points) => points.reduce((best, p) => (Math.abs(p[0] - step) < Math.abs(best[0] - step) ? p : best));
    this.head.replaceChildren(document.createTextNode(this.title));
    const said = [];
    this.lines.forEach(([name, points], at) => {
      const point = this.at === null ? points[points.length - 1] : near(points);
      const label = this.lines.length > 1 ? `${name} ` : '';
      this.head.append(make('span', `s${at}`, `${label}${brief(point[1])}`));
      said.push(`${label}${brief(point[1])}`);
    });
    if (this.marker) this.marker.remove();
    this.marker = this.at === null ? null : this.rule(this.at * 100, 0, this.at * 100, 100, 'now');
    this.svg.setAttribute('aria-label', `${this.title}: ${said.join(', ')}; from ${brief(this.y[0])} to ${brief(this.y[1])}`);
    const where = this.at === null ? `step ${this.x[0]} to ${this.x[1]}` : `step ${Math.round(step)}`;
    this.ends.replaceChildren(make('span', '', `${brief(this.y[0])} to ${brief(this.y[1])}`), make('span', '', where));
  }
}
