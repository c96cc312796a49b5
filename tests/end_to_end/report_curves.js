// Holds the arithmetic of the plots of the report to values: node report_curves.js WORDS.JS CURVES.JS. Fails with what
// is wrong.
const assert = require('node:assert');
const names = 'ticks, scaleOf, shortNumber, smoothed, pointsOf, yScale';
const { ticks, scaleOf, shortNumber, smoothed, pointsOf, yScale } = new Function(
  // The page's data is of no run.
  `const document = { getElementById: () => ({ textContent: '{"runs": []}' }) };` +
  process.argv.slice(2).map(path => require('node:fs').readFileSync(path, 'utf8')).join('') + `; return { ${names} };`)();

assert.deepEqual(ticks(scaleOf(0, 160, false), 4), [0, 50, 100, 150]);
assert.deepEqual(ticks(scaleOf(4.8, 8.9, false), 5), [5, 6, 7, 8]);
assert.deepEqual(ticks(scaleOf(0.5, 30, true), 5), [0.5, 1, 2, 5, 10, 20]);
assert.equal(ticks(scaleOf(1e-3, 1e6, true), 5).length, 5);
assert.deepEqual(ticks(scaleOf(3, 8, true), 5), [3, 4, 5, 6, 7, 8], 'within a decade as on a linear axis');
assert.deepEqual(ticks(scaleOf(1, 1, false), 5), []);

assert.equal(scaleOf(1, 100, true).share(10), 0.5);
assert.equal(scaleOf(1, 100, true).value(0.5), 10);
assert.equal(scaleOf(20, 40, false).share(25), 0.25);

assert.equal(shortNumber(12345), '12.3k');
assert.equal(shortNumber(1500), '1500');
assert.equal(shortNumber(0.002), '0.002');
assert.equal(shortNumber(0.0006), '6e-4');
assert.equal(shortNumber(5000, 3, 15000), '5k', 'as its neighbours on an axis');
assert.equal(shortNumber(0, 3, 15000), '0');

assert.deepEqual(smoothed([3, 1, 4], 0), [3, 1, 4]);
assert.deepEqual(smoothed([3, 0, 6, 3, 0], 1), [3, 3, 3, 3, 1.5]);
assert.deepEqual(smoothed([1, 2, 3, 4, 5, 6], 9), [1, 2, 3, 3.5, 3.5, 3.5], 'as many on both sides, but at the end');
assert.deepEqual(smoothed([1, null, 3, 5], 1), [1, null, 4, 4], 'what is not there counts for nothing');

// A range and smoothing: the mean is of all steps, also of those beyond the range.
const steps = [1, 2, 3, 4, 5, 6, 7, 8], loss = [8, 7, null, 5, 4, 3, 2, -1];
const run = { steps: { steps, tokens: steps.map(s => 64 * s) }, values: { Loss: { mean: loss } } };
const plot = { title: 'Loss', over: 'steps', noisy: true };
const view = { by: 'steps', smooth: 0, logY: {} };
const shown = pointsOf(run, plot, view, { ...scaleOf(2, 5, false), unit: 1 });
assert.deepEqual(shown.points.map(([x, y]) => [x, y]), [[2, 7], [4, 5], [5, 4]]);
const smooth = pointsOf(run, plot, { ...view, smooth: 8 }, { ...scaleOf(5, 5.5, false), unit: 1 });
assert.deepEqual(smooth.points, [[5, 4, 4, 4]]);
assert.deepEqual(pointsOf(run, plot, { ...view, by: 'tokens' }, { ...scaleOf(0, 128, false), unit: 1 }).points.length, 2);

// A logarithmic axis leaves out what is not positive.
const all = [pointsOf(run, plot, view, { ...scaleOf(0, 8, false), unit: 1 })];
assert.ok(yScale(all, plot, view).low < -1);
const log = yScale(all, plot, { ...view, logY: { Loss: true } });
assert.ok(log.log && log.low < 2 && log.low > 1.8 && log.high > 8 && log.high < 8.6, JSON.stringify(log));
assert.equal(yScale([], plot, view), null);
