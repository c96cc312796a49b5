// Makes elements of the page, and words of numbers.
const data = JSON.parse(document.getElementById('data').textContent);

// A parser gives SVG's namespace, so that the page contains no address.
const svgNames = () => {
  const template = document.createElement('template');
  template.innerHTML = '<svg/>';
  return template.content.firstChild.namespaceURI;
};
const element = (tag, attributes = {}, ...children) => {
  const svg = ['svg', 'path', 'polyline', 'rect', 'title'].includes(tag);
  const made = svg ? document.createElementNS(svgNames(), tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter(child => child !== ''));
  return made;
};

// Returns 12.3k, 4.27M, 1.2B or 6e-4, in the unit of `like`.
const shortNumber = (value, digits = 3, like = value) => {
  for (const [unit, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']])
    if (value !== 0 && Math.abs(like) >= unit && (unit > 1e3 || Math.abs(like) >= 9995))
      return +(value / unit).toPrecision(digits) + letter;
  if (value !== 0 && Math.abs(like) < 0.001) return (+value.toPrecision(digits)).toExponential();
  return String(Math.abs(value) >= 1000 ? Math.round(value) : +value.toPrecision(digits));
};

const grouped = value => value.toLocaleString('en-US');
const counted = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
const byteCount = bytes => bytes >= 2 ** 30 ? (bytes / 2 ** 30).toFixed(2) + ' GiB' : (bytes / 2 ** 20).toFixed(1) + ' MiB';
const duration = hours => hours >= 48 ? (hours / 24).toFixed(1) + '\u00a0days'
  : hours >= 1 ? +hours.toPrecision(2) + '\u00a0h'
  : hours >= 1 / 60 ? +(hours * 60).toPrecision(3) + '\u00a0min' : +(hours * 3600).toPrecision(3) + '\u00a0s';
const dayAndTime = seconds => new Date(1000 * seconds).toISOString().slice(0, 16).replace('T', ' ') + ' UTC';
const joined = (parts, between) => parts.filter(Boolean).join(between);

// Returns the class of the lines of a run: 12 colours, then dashed and dotted.
const lineClass = r => `line-${r % 12}` + (r >= 12 ? ` dash-${Math.floor(r / 12) % 3}` : '');
data.runs.forEach((run, r) => { run.line = lineClass(r); });
