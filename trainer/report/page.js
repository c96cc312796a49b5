// Changes the view by the controls and shows values under the pointer. The address has the view after #, so that a page
// that is reopened or shared shows the same.
const control = name => document.getElementById(name);
const readView = () => {
  const said = new URLSearchParams(location.hash.slice(1));
  const bound = name => said.get(name) && isFinite(said.get(name)) ? +said.get(name) : null;
  const logY = {};
  for (const title of said.getAll('log')) logY[title] = true;
  for (const title of said.getAll('linear')) logY[title] = false;
  return {
    by: ['steps', 'tokens', 'time'].includes(said.get('over')) ? said.get('over') : 'steps',
    logX: said.get('x') === 'log', from: bound('from'), to: bound('to'),
    smooth: bound('smooth') ?? 5, logY, hidden: new Set(said.getAll('hide').map(Number)),
  };
};
const view = readView();
const keepView = () => {
  const said = new URLSearchParams();
  if (view.by !== 'steps') said.set('over', view.by);
  if (view.logX) said.set('x', 'log');
  if (view.from !== null) said.set('from', view.from);
  if (view.to !== null) said.set('to', view.to);
  if (view.smooth !== 5) said.set('smooth', view.smooth);
  for (const title in view.logY) said.append(view.logY[title] ? 'log' : 'linear', title);
  for (const r of view.hidden) said.append('hide', r);
  // Some pages may not change their address.
  try { history.replaceState(null, '', '#' + said); } catch { return; }
};

// Returns the axis that all plots share, over the visible runs.
const xAxis = () => {
  let low = Infinity, high = 0;
  data.runs.forEach((run, r) => {
    if (view.hidden.has(r)) return;
    for (const all of [run.steps[view.by], run.evaluations[view.by]]) {
      for (const place of all) if (place > 0) { low = Math.min(low, place); break; }
      high = Math.max(high, all.at(-1) ?? 0);
    }
  });
  high = high || 1;
  const [unit, label] = view.by !== 'time' ? [1, view.by] : high >= 2 ? [1, 'hours of training']
    : high >= 0.034 ? [1 / 60, 'minutes of training'] : [1 / 3600, 'seconds of training'];
  const end = Math.max(high / unit, 1e-9), least = Math.min(low / unit, end / 2);
  let from = view.from ?? 0, to = view.to ?? end;
  if (view.logX) from = Math.max(from, least);
  if (!(to > from)) [from, to] = [view.logX ? least : 0, end];
  return { ...scaleOf(from, to, view.logX), unit, label };
};

let shown = [];
const draw = () => {
  const x = xAxis();
  shown = data.plots.map(plot => drawPlot(plot, data, view, x)).filter(Boolean);
  control('plots').replaceChildren(...shown.map(one => one.figure));
  shown.forEach(follow);
  const times = data.time.filter(time => !view.hidden.has(time.run));
  control('times').replaceChildren(...times.map(time => drawStacked(time, data)));
  control('times-head').hidden = data.time.length === 0;
  for (const by of ['steps', 'tokens', 'time']) control('by-' + by).checked = by === view.by;
  control('log-x').checked = view.logX;
  control('smooth').value = view.smooth;
  control('from').value = view.from ?? '';
  control('to').value = view.to ?? '';
  control('from').placeholder = shortNumber(x.low);
  control('to').placeholder = shortNumber(x.high, 4);
  control('reset').hidden = view.from === null && view.to === null;
  document.querySelectorAll('.legend input').forEach(box => { box.checked = !view.hidden.has(+box.dataset.run); });
  document.querySelectorAll('tr[data-run]').forEach(row =>
    row.classList.toggle('hidden', view.hidden.has(+row.dataset.run)));
};
const change = what => {
  Object.assign(view, what);
  keepView();
  draw();
};

const nearest = (points, place) => {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < place) low = middle; else high = middle;
  }
  return place - points[low][0] < points[high][0] - place ? points[low] : points[high];
};
const clear = () => document.querySelectorAll('.cursor, .tip').forEach(e => e.remove());

// Shows values under the pointer; dragging chooses a range.
const follow = ({ plot, x, y, curves, area, toggle }) => {
  let pressed = null;
  const shareAt = event => {
    const box = area.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  area.addEventListener('pointermove', event => {
    clear();
    const share = shareAt(event), place = x.value(share);
    const from = pressed ?? share;
    const span = `left:${100 * Math.min(share, from)}%;width:${100 * Math.abs(share - from)}%`;
    for (const one of shown) one.area.append(element('div', { class: 'cursor', style: span }));
    const side = (share < 0.5 ? 'left' : 'right') + `:calc(${100 * Math.min(share, 1 - share)}% + .6rem)`;
    const head = element('span', {}, shortNumber(place, 4) + ' ' + x.label);
    const tip = element('div', { class: 'tip', style: side }, head);
    for (const { run, points } of curves) {
      if (place > points.at(-1)[0] + (x.high - x.low) / 200) continue;  // the run had ended
      const value = shortNumber(nearest(points, place)[1], 4), name = data.runs.length > 1 ? '  ' + run.name : '';
      tip.append(element('div', {}, element('i', { class: run.line }), value + name));
    }
    area.append(tip);
  });
  area.addEventListener('pointerleave', () => { pressed = null; clear(); });
  area.addEventListener('pointerdown', event => {
    if (event.pointerType !== 'mouse' || event.button !== 0) return;
    pressed = shareAt(event);
    event.preventDefault();
  });
  area.addEventListener('pointerup', event => {
    const begin = pressed, end = shareAt(event);
    pressed = null;
    if (begin === null || Math.abs(end - begin) < 0.01) return;
    const at = share => +x.value(share).toPrecision(4);
    change({ from: at(Math.min(begin, end)), to: at(Math.max(begin, end)) });
  });
  area.addEventListener('dblclick', () => change({ from: null, to: null }));
  toggle.addEventListener('click', () => change({ logY: { ...view.logY, [plot.title]: !y.log } }));
};

control('title').textContent = document.title = titleOf();
control('about').textContent = data.runs.length > 1 && data.runs.length <= 4 ? compared() : '';
control('overview').replaceWith(...(data.runs.length === 1 ? [tiles(data.runs[0])] : table()));
control('facts').replaceWith(...(data.runs.length === 1 ? [element('div', { class: 'card' }, factsOf(data.runs[0]))] : []));
control('memory').replaceWith(...memory());
control('runs').replaceWith(...(data.runs.length === 1 ? [] : cards()));
control('legend').replaceWith(...legend());
for (const by of ['steps', 'tokens', 'time'])
  control('by-' + by).addEventListener('change', () => change({ by, from: null, to: null }));
control('log-x').addEventListener('change', event => change({ logX: event.target.checked }));
control('smooth').addEventListener('input', event => change({ smooth: +event.target.value }));
for (const name of ['from', 'to'])
  control(name).addEventListener('change', event =>
    change({ [name]: event.target.value === '' ? null : +event.target.value }));
control('reset').addEventListener('click', () => change({ from: null, to: null }));
document.querySelectorAll('.legend input').forEach(box => box.addEventListener('change', () => {
  const hidden = new Set(view.hidden);
  if (box.checked) hidden.delete(+box.dataset.run); else hidden.add(+box.dataset.run);
  change({ hidden });
}));
addEventListener('hashchange', () => change(readView()));
draw();
