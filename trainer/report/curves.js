// Draws plots of `data` in the view (page.js): an SVG that stretches with the page, amid text that keeps its size.

// Returns about `count` values on an axis that are 1, 2 or 5 times a power of ten.
const ticks = (scale, count) => {
  const all = [], { low, high } = scale;
  if (!(high > low)) return all;
  const decades = Math.log10(high / low);
  if (scale.log && decades >= 1) {
    const stride = Math.max(1, Math.round(decades / count));
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
      for (const factor of power % stride ? [] : decades < 2.5 ? [1, 2, 5] : [1]) {
        const tick = factor * 10 ** power;
        if (tick >= low && tick <= high) all.push(tick);
      }
    return all;
  }
  const wanted = (high - low) / count, power = 10 ** Math.floor(Math.log10(wanted)), rest = wanted / power;
  const step = power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) all.push(i * step);
  return all;
};

const scaleOf = (low, high, log) => ({
  low, high, log,
  share: log ? v => Math.log(v / low) / Math.log(high / low) : v => (v - low) / (high - low),
  value: log ? s => low * (high / low) ** s : s => low + (high - low) * s,
});

// Returns the means of up to `around` values on either side, without null: equally many on both sides at the beginning,
// where a loss falls fast, and all there are at the end.
const smoothed = (values, around) => {
  const sum = [0], number = [0];
  values.forEach((value, i) => {
    sum.push(sum[i] + (value ?? 0));
    number.push(number[i] + (value === null ? 0 : 1));
  });
  return values.map((value, i) => {
    const each = Math.min(around, i), begin = i - each, end = Math.min(values.length, i + each + 1);
    return value === null ? null : (sum[end] - sum[begin]) / (number[end] - number[begin]);
  });
};

// Returns the points of a run that a plot shows, [x, mean, low, high] in the units of the axis, within its range.
const pointsOf = (run, plot, view, x) => {
  const places = run[plot.over][view.by], { mean, low = mean, high = mean } = run.values[plot.title];
  // The smoothing spans 1/1024 to 1/4 of the run on either side.
  const around = plot.noisy && view.smooth > 0 ? Math.round(mean.length / 2 ** (11 - view.smooth)) : 0;
  const line = around > 0 ? smoothed(mean, around) : mean, points = [];
  for (let i = 0; i < places.length; i++) {
    const at = places[i] / x.unit;
    if (line[i] !== null && at >= x.low && at <= x.high) points.push([at, line[i], low[i], high[i]]);
  }
  return { run, points, faint: around > 0 || low !== mean };
};

const valuesRange = (curves, plot, log) => {
  let low = Infinity, high = -Infinity;
  for (const { points, faint } of curves)
    for (const [, mean, least, most] of points)
      for (const value of faint ? [least, most] : [mean])
        if (value > 0 || !log) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
};

const yScale = (curves, plot, view) => {
  const wanted = view.logY[plot.title];
  let [low, high] = valuesRange(curves, plot, false);
  const log = wanted ?? (plot.maybeLog && low > 0 && high > 10 * low);
  if (log) [low, high] = valuesRange(curves, plot, true);
  if (!(high >= low)) return null;
  const margin = 0.04;
  if (log) {
    const room = high > low ? (high / low) ** margin : 1.1;
    return scaleOf(low / room, high * room, true);
  }
  if (plot.fromZero) return scaleOf(0, high > 0 ? high * (1 + margin) : 1, false);
  const room = high > low ? (high - low) * margin : Math.max(Math.abs(high) * margin, 1e-12);
  return scaleOf(low - room, high + room, false);
};

const number = value => +value.toPrecision(5);

// Returns lines in the SVG's square of 1000 by 1000. The faint line goes through each column's lowest and highest value.
const columns = 500;
const linesOf = ({ run, points, faint }, x, y, plot) => {
  const at = ([place, value]) => number(1000 * x.share(place)) + ',' + number(1000 * (1 - y.share(value)));
  const shown = y.log ? points.filter(point => point[2] > 0) : points, lines = [];
  if (faint) {
    const extremes = [];
    let column = -1;
    for (const [place, , low, high] of shown) {
      const its = Math.floor(columns * x.share(place)), last = extremes.at(-1);
      if (its !== column) extremes.push([place, low, high]);
      else [last[1], last[2]] = [Math.min(last[1], low), Math.max(last[2], high)];
      column = its;
    }
    const each = extremes.flatMap(([place, low, high]) =>
      low === high ? [[place, low]] : [[place, low], [place, high]]);
    lines.push(element('polyline', { class: 'each ' + run.line, points: each.map(at).join(' ') }));
  }
  lines.push(element('polyline', { class: 'line ' + run.line, points: shown.map(at).join(' ') }));
  if (plot.over === 'evaluations' && shown.length <= 60) {
    const dots = shown.map(point => 'M' + at(point) + 'h0').join('');
    lines.push(element('path', { class: 'dots ' + run.line, d: dots }));
  }
  return lines;
};

// An earlier start ended at the step before.
const marksOf = (run, view, x, alone) => {
  const places = run.steps[view.by];
  const path = (kind, bins, line) => {
    const inRange = bins.map(bin => places[bin] / x.unit).filter(place => place >= x.low && place <= x.high);
    const d = inRange.map(place => 'M' + number(1000 * x.share(place)) + line).join('');
    return element('path', { class: kind, d });
  };
  const ends = run.resumed.map(bin => Math.max(0, bin - 1));
  return [path('skipped', run.skipped, ' 1000v-40'), alone ? path('resumed', ends, ' 0V1000') : ''];
};

// Returns a figure with axes around the drawing.
const frame = (plot, head, x, y, drawn, notes) => {
  const div = (kind, ...children) => element('div', kind ? { class: kind } : {}, ...children);
  const xTicks = ticks(x, 4), yTicks = ticks(y, 5);
  const lines = yTicks.map(tick => 'M0 ' + number(1000 * (1 - y.share(tick))) + 'H1000').join('');
  const labels = (all, scale, side, digits) => all.map(tick => {
    const share = side === 'top' ? 1 - scale.share(tick) : scale.share(tick);
    return element('span', { style: side + ':' + (100 * share).toFixed(2) + '%' },
      shortNumber(tick, digits, scale.log ? tick : all.at(-1)));
  });
  const area = div('area', element('svg',
    { viewBox: '0 0 1000 1000', preserveAspectRatio: 'none', role: 'img', 'aria-label': plot.title },
    ...drawn(element('path', { class: 'grid', d: lines }))));
  const right = div('', area, div('x', ...labels(xTicks, x, 'left', 4)), div('unit', x.label));
  const figure = element('figure', { class: 'plot' + (plot.wide ? ' wide' : '') },
    element('figcaption', {}, ...head), div('frame', div('y', ...labels(yTicks, y, 'top', 3)), right), ...notes);
  return { area, figure };
};

const noteOn = (runs, view, alone) => {
  const bin = Math.max(...runs.map(run => run.steps_a_point)), said = [];
  const faint = bin > 1 ? `lowest and highest of every ${bin} steps` : 'each step';
  if (view.smooth > 0) said.push(`Faint: ${faint}; strong: the mean around it.`);
  if (runs.some(run => run.skipped.length)) said.push('Marks at the bottom: skipped steps.');
  if (alone && runs[0].resumed.length) said.push('Dashed: resumed there.');
  return said.length ? [element('p', { class: 'note' }, said.join(' '))] : [];
};

// Returns null if nothing is in view.
const drawPlot = (plot, data, view, x) => {
  const runs = plot.runs.filter(r => !view.hidden.has(r)).map(r => data.runs[r]);
  const curves = runs.map(run => pointsOf(run, plot, view, x)).filter(curve => curve.points.length > 0);
  const y = yScale(curves, plot, view);
  if (!y) return null;
  const toggle = element('button',
    { type: 'button', 'aria-pressed': y.log, title: 'logarithmic axis of values' }, 'log');
  const head = [element('b', {}, plot.title), element('span', {}, plot.unit),
    plot.under ? element('span', {}, 'under ' + plot.under) : '', toggle];
  const alone = data.runs.length === 1, lines = curves.flatMap(curve => linesOf(curve, x, y, plot));
  const marks = plot.marks ? runs.flatMap(run => marksOf(run, view, x, alone)) : [];
  const notes = plot.marks ? noteOn(runs, view, alone) : [];
  return { plot, x, y, curves, toggle, ...frame(plot, head, x, y, grid => [grid, ...lines, ...marks], notes) };
};
