// Shows one placed graph: scopes that open and close, devices as colours, what crosses them
// as edges with bytes, and why each node is where it is. No library and no network.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = 'http://www.w3.org/2000/svg';
  const svgEl = (tag, attrs, parent, text) => {
    const e = document.createElementNS(SVG, tag);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.appendChild(e);
    return e;
  };
  const htmlEl = (tag, className, text, parent) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    if (parent) parent.appendChild(e);
    return e;
  };

  // ---- The model. A node of the file is [name, op, device, rule, inputs, bytes, shapes, attrs,
  // why, leader]; numbers stand for entries of data.strings and data.devices.
  const nodes = data.nodes.map((n, id) => ({
    kind: 'node', id, name: n[0], label: n[0].slice(n[0].lastIndexOf('/') + 1),
    op: data.strings[n[1]], device: n[2], rule: n[3], inputs: n[4], bytes: n[5], shapes: n[6],
    attrs: n[7], why: n[8], leader: n[9], parent: null, outputs: [],
  }));
  const deviceName = (d) => data.devices[d] || '(no device)';
  const taskName = (d) => deviceName(d).replace(/\/device:.*$/, '');
  const edges = [];  // {src, slot, dst}; slot -1: control
  for (const n of nodes) {
    for (let i = 0; i < n.inputs.length; i += 2) {
      const e = {src: nodes[n.inputs[i]], slot: n.inputs[i + 1], dst: n};
      edges.push(e);
      e.src.outputs.push(e);
    }
  }

  const MOST = 48;  // children of a scope that are shown at once
  let nextScope = 0;
  const scopes = [];
  const newScope = (label, path, parent) => {
    const s = {kind: 'scope', id: 's' + nextScope++, label, path, parent, children: [], open: false};
    scopes.push(s);
    return s;
  };
  const root = newScope('', '', null);
  root.open = true;

  function buildScopes() {
    const byPath = new Map([['', root]]);
    const scopeOf = (path) => {
      let s = byPath.get(path);
      if (s) return s;
      const cut = path.lastIndexOf('/');
      const parent = scopeOf(cut < 0 ? '' : path.slice(0, cut));
      s = newScope(path.slice(cut + 1), path, parent);
      parent.children.push(s);
      byPath.set(path, s);
      return s;
    };
    for (const n of nodes) {
      const cut = n.name.lastIndexOf('/');
      if (cut > 0) scopeOf(n.name.slice(0, cut));
    }
    for (const n of nodes) {
      const cut = n.name.lastIndexOf('/');
      // A node that has others below its name (w and w/read) lies among these.
      n.parent = byPath.get(n.name) || byPath.get(cut < 0 ? '' : n.name.slice(0, cut));
      n.parent.children.push(n);
    }
  }

  // A scope in a scope with nothing else is one.
  function mergeChains(s) {
    for (const c of s.children) {
      if (c.kind !== 'scope') continue;
      while (c.children.length === 1 && c.children[0].kind === 'scope') {
        const only = c.children[0];
        c.label += '/' + only.label;
        c.path = only.path;
        c.children = only.children;
        for (const x of c.children) x.parent = c;
      }
      mergeChains(c);
    }
  }

  const pack = (label, path, members, parent) => {
    const s = newScope(label, path, parent);
    s.made = true;
    s.children = members;
    for (const m of members) m.parent = s;
    return s;
  };

  // Too many children become series (layer_1, layer_2, ...), and what is left, pages.
  function divide(s) {
    if (s.children.length > MOST && !s.made) {
      const stems = new Map();
      for (const c of s.children) {
        const stem = c.kind + ':' + c.label.replace(/\d+/g, '#');
        if (!stems.has(stem)) stems.set(stem, []);
        stems.get(stem).push(c);
      }
      const children = [];
      for (const [stem, members] of stems) {
        if (members.length < 5 || members.length === s.children.length) children.push(...members);
        else {
          const label = stem.slice(stem.indexOf(':') + 1).replace(/#/g, '\u2026');
          children.push(pack(`${label} \u00d7${members.length}`, s.path, members, s));
        }
      }
      s.children = children;
    }
    if (s.children.length > MOST) {
      const size = Math.ceil(s.children.length / Math.min(40, Math.ceil(s.children.length / 40)));
      const pages = [];
      for (let i = 0; i < s.children.length; i += size) {
        const members = s.children.slice(i, i + size);
        pages.push(pack(`${members[0].label} \u2013 ${members[members.length - 1].label}`, s.path, members, s));
      }
      s.children = pages;
    }
    for (const c of s.children) if (c.kind === 'scope') divide(c);
  }

  // Nodes by device, for the bar of a closed scope.
  function count(s) {
    s.size = 0;
    s.devices = new Map();
    for (const c of s.children) {
      if (c.kind === 'scope') count(c);
      s.size += c.kind === 'scope' ? c.size : 1;
      const of = c.kind === 'scope' ? c.devices : [[c.device, 1]];
      for (const [d, k] of of) s.devices.set(d, (s.devices.get(d) || 0) + k);
    }
  }

  buildScopes();
  mergeChains(root);
  divide(root);
  count(root);

  // ---- Colours.
  const PALETTE = ['#8ecae6', '#ffc478', '#a8dba0', '#f4a6b8', '#c9b6f0', '#f1e07a', '#9adbd0', '#e3b591',
    '#b7c7ea', '#d7e39a', '#f0b3e3', '#bfc5cd', '#86b6f6', '#ff9f87'];
  let colourBy = 'device';
  const keyOf = (d) => (colourBy === 'device' ? deviceName(d) : taskName(d));
  let colours = new Map();
  function assignColours() {
    const keys = new Map();
    for (const n of nodes) keys.set(keyOf(n.device), (keys.get(keyOf(n.device)) || 0) + 1);
    colours = new Map([...keys.keys()].sort().map((k, i) => [k, {
      colour: i < PALETTE.length ? PALETTE[i] : `hsl(${(i * 137.5) % 360} 55% 76%)`, nodes: keys.get(k)}]));
  }
  const colourOf = (d) => colours.get(keyOf(d)).colour;
  const crosses = (e) => keyOf(e.src.device) !== keyOf(e.dst.device);

  function formatBytes(b) {
    if (b < 1024) return b + ' B';
    const units = ['KiB', 'MiB', 'GiB', 'TiB'];
    let i = -1;
    do { b /= 1024; ++i; } while (b >= 1024 && i < units.length - 1);
    return (b < 10 ? b.toFixed(1) : Math.round(b)) + ' ' + units[i];
  }
  // Of edges that cross: a value goes to each place once, however many read it.
  function sumBytes(list) {
    const seen = new Set();
    const sum = {bytes: 0, unknown: 0, tensors: 0, controls: 0};
    for (const e of list) {
      if (!crosses(e)) continue;
      const key = `${e.src.id}:${e.slot}>${keyOf(e.dst.device)}`;
      if (seen.has(key)) continue;
      seen.add(key);
      if (e.slot < 0) { ++sum.controls; continue; }
      ++sum.tensors;
      const b = e.src.bytes[e.slot];
      if (b >= 0) sum.bytes += b; else ++sum.unknown;
    }
    return sum;
  }
  const sumText = (s) => s.tensors === 0 ? '0 B' :
    (s.unknown === s.tensors ? '? B' : formatBytes(s.bytes) + (s.unknown ? ' + ?' : ''));

  // ---- What is visible.
  function visibleOf(n) {
    let shown = n;
    for (let p = n.parent; p; p = p.parent) if (!p.open) shown = p;
    return shown;
  }
  function bundle() {
    const bundles = new Map();
    for (const e of edges) {
      if (e.slot < 0 && !$('control').checked) continue;
      const a = visibleOf(e.src), b = visibleOf(e.dst);
      if (a === b) continue;
      const key = a.id + '>' + b.id;
      let x = bundles.get(key);
      if (!x) bundles.set(key, x = {a, b, edges: [], control: true, cut: false});
      x.edges.push(e);
      x.control = x.control && e.slot < 0;
      x.cut = x.cut || crosses(e);
    }
    return [...bundles.values()];
  }

  // ---- Layout: layers from left to right, each open scope by itself, from the inside out.
  const GAP_X = 46, GAP_Y = 12, PAD = 16, HEAD = 24;
  const textWidth = (() => {
    const context = document.createElement('canvas').getContext('2d');
    return (text, size, weight) => {
      context.font = `${weight || 400} ${size}px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif`;
      return context.measureText(text).width;
    };
  })();
  const shorten = (text, most) => text.length <= most ? text : text.slice(0, most - 9) + '\u2026' + text.slice(-8);

  function measure(item) {
    item.text = shorten(item.label, 34);
    const isScope = item.kind === 'scope';
    item.sub = isScope ? `${item.size} nodes` : item.op;
    item.w = Math.max(textWidth(item.text, 12, isScope ? 600 : 400), textWidth(item.sub, 10)) + 20 + (isScope ? 22 : 0);
    item.h = isScope ? 44 : 36;
  }

  function layoutScope(scope, lifted) {
    const items = scope.children;
    for (const c of items) {
      if (c.kind === 'scope' && c.open) layoutScope(c, lifted); else measure(c);
    }
    const links = lifted.get(scope) || [];
    const vertices = new Map(items.map((item, order) => [item, {item, order, out: [], in: [], w: item.w, h: item.h}]));
    for (const [a, b] of links) {
      const u = vertices.get(a), v = vertices.get(b);
      u.out.push(v);
      v.in.push(u);
    }
    const all = [...vertices.values()];
    const joined = all.filter((v) => v.out.length + v.in.length > 0);
    const alone = all.filter((v) => v.out.length + v.in.length === 0);
    const routes = new Map();
    const size = layers(joined, routes);
    // What has no edges stands below, in rows.
    const rowWidth = Math.max(size.w, 900);
    let x = 0, y = size.h + (joined.length && alone.length ? GAP_Y * 2 : 0), row = 0;
    let width = size.w;
    for (const v of alone) {
      if (x > 0 && x + v.w > rowWidth) { x = 0; y += row + GAP_Y; row = 0; }
      v.x = x;
      v.y = y;
      row = Math.max(row, v.h);
      x += v.w + GAP_Y;
      width = Math.max(width, x - GAP_Y);
    }
    if (alone.length) y += row;
    for (const v of all) { v.item.x = v.x + PAD; v.item.y = v.y + HEAD + 6; }
    scope.routes = routes;
    scope.w = Math.max(width + 2 * PAD, textWidth(scope.label, 12, 600) + 60);
    scope.h = (alone.length ? y : size.h) + HEAD + 6 + PAD;
  }

  // Gives each vertex x and y; puts the bends of long edges into `routes`, by "a>b".
  function layers(list, routes) {
    if (!list.length) return {w: 0, h: 0};
    // Edges that close a circle are turned round.
    const state = new Map();
    const forward = [];
    for (const start of list) {
      if (state.has(start)) continue;
      const stack = [[start, 0]];
      state.set(start, 1);
      while (stack.length) {
        const top = stack[stack.length - 1];
        if (top[1] === top[0].out.length) { state.set(top[0], 2); stack.pop(); continue; }
        const next = top[0].out[top[1]++];
        if (state.get(next) === 1) forward.push([next, top[0], true]);
        else forward.push([top[0], next, false]);
        if (!state.has(next)) { state.set(next, 1); stack.push([next, 0]); }
      }
    }
    for (const v of list) { v.up = []; v.down = []; v.rank = 0; }
    for (const [u, v] of forward) { if (u !== v) { u.down.push(v); v.up.push(u); } }
    const order = [];
    const waits = new Map(list.map((v) => [v, v.up.length]));
    const ready = list.filter((v) => !v.up.length);
    while (ready.length) {
      const v = ready.shift();
      order.push(v);
      for (const d of v.down) {
        d.rank = Math.max(d.rank, v.rank + 1);
        waits.set(d, waits.get(d) - 1);
        if (waits.get(d) === 0) ready.push(d);
      }
    }
    // What only feeds goes next to what it feeds.
    for (const v of order.slice().reverse()) {
      if (v.down.length && !v.up.length) v.rank = Math.min(...v.down.map((d) => d.rank)) - 1;
    }
    const ranks = [];
    const put = (v) => { (ranks[v.rank] = ranks[v.rank] || []).push(v); };
    order.forEach(put);
    // Long edges bend at every layer they pass.
    let bends = 0;
    for (const v of order) { v.next = []; v.before = []; }
    for (const [u, v, turned] of forward) {
      if (u === v) continue;
      let from = u;
      const points = [];
      if (v.rank - u.rank > 1 && bends < 4000) {
        for (let r = u.rank + 1; r < v.rank; ++r) {
          const bend = {rank: r, w: 0, h: 4, next: [], before: [from], bend: true};
          from.next.push(bend);
          put(bend);
          points.push(bend);
          from = bend;
          ++bends;
        }
      }
      from.next.push(v);
      v.before.push(from);
      if (points.length) {
        const key = turned ? `${v.item.id}>${u.item.id}` : `${u.item.id}>${v.item.id}`;
        routes.set(key, turned ? points.slice().reverse() : points);
      }
    }
    const columns = [];
    for (let r = 0; r < ranks.length; ++r) columns.push(ranks[r] || []);
    const place = () => columns.forEach((column) => column.forEach((v, i) => { v.pos = i; }));
    place();
    const median = (around) => {
      const p = around.map((v) => v.pos).sort((a, b) => a - b);
      const m = p.length >> 1;
      return p.length % 2 ? p[m] : (p[m - 1] + p[m]) / 2;
    };
    for (let sweep = 0; sweep < 10; ++sweep) {
      const down = sweep % 2 === 0;
      for (let i = 0; i < columns.length; ++i) {
        const column = columns[down ? i : columns.length - 1 - i];
        for (const v of column) {
          const around = down ? v.before : v.next;
          v.key = around.length ? median(around) : v.pos;
        }
        column.sort((a, b) => a.key - b.key || a.pos - b.pos);
        column.forEach((v, k) => { v.pos = k; });
      }
    }
    // Heights: as near to the neighbours as the order allows.
    for (const column of columns) {
      let y = 0;
      for (const v of column) { v.y = y; y += v.h + GAP_Y; }
    }
    const middle = (v) => v.y + v.h / 2;
    for (let sweep = 0; sweep < 8; ++sweep) {
      const down = sweep % 2 === 0;
      for (let i = 0; i < columns.length; ++i) {
        const column = columns[down ? i : columns.length - 1 - i];
        for (const v of column) {
          const around = down ? v.before : v.next;
          v.want = around.length ? around.reduce((s, n) => s + middle(n), 0) / around.length - v.h / 2 : v.y;
        }
        settle(column);
      }
    }
    let left = Infinity, w = 0, h = 0, x = 0;
    for (const column of columns) for (const v of column) left = Math.min(left, v.y);
    for (const column of columns) {
      const width = Math.max(0, ...column.map((v) => v.w));
      for (const v of column) {
        v.x = v.bend ? x + width / 2 : x + (width - v.w) / 2;
        v.y -= left;
        h = Math.max(h, v.y + v.h);
      }
      x += width + GAP_X + Math.min(60, column.length * 1.5);
      w = Math.max(w, x - GAP_X);
    }
    return {w, h};
  }

  // The nearest positions to v.want that keep the order and the gaps (pool adjacent violators).
  function settle(column) {
    const blocks = [];
    let offset = 0;
    for (const v of column) {
      v.offset = offset;
      offset += v.h + (v.bend ? 4 : GAP_Y);
      blocks.push({sum: v.want - v.offset, n: 1, first: v});
      while (blocks.length > 1) {
        const b = blocks[blocks.length - 1], a = blocks[blocks.length - 2];
        if (a.sum / a.n <= b.sum / b.n) break;
        a.sum += b.sum;
        a.n += b.n;
        blocks.pop();
      }
    }
    let k = 0;
    for (const b of blocks) {
      for (let i = 0; i < b.n; ++i) { const v = column[k++]; v.y = b.sum / b.n + v.offset; }
    }
  }

  const ancestors = (item) => {
    const chain = [];
    for (let p = item.parent; p; p = p.parent) chain.push(p);
    return chain;
  };
  // The children of the innermost common scope that hold both ends.
  function lift(a, b) {
    const of = new Map();
    for (let x = a; x.parent; x = x.parent) of.set(x.parent, x);
    for (let y = b; y.parent; y = y.parent) if (of.has(y.parent)) return [y.parent, of.get(y.parent), y];
    return null;
  }

  // ---- Drawing.
  const scene = $('scene');
  let view = {x: 0, y: 0, k: 1};
  let bundles = [];
  let selected = null;  // {item} or {bundle}
  const elements = new Map();  // of visible items, by id

  const applyView = () => scene.setAttribute('transform', `translate(${view.x} ${view.y}) scale(${view.k})`);

  function absolute(scope, x, y) {
    scope.ax = x;
    scope.ay = y;
    for (const c of scope.children) {
      if (c.kind === 'scope' && c.open) absolute(c, x + c.x, y + c.y);
      else { c.ax = x + c.x; c.ay = y + c.y; }
    }
  }

  function layout() {
    bundles = bundle();
    const lifted = new Map();
    const seen = new Set();
    for (const x of bundles) {
      const up = lift(x.a, x.b);
      if (!up || up[1] === up[2]) continue;
      x.scope = up[0];
      x.route = `${up[1].id}>${up[2].id}`;
      if (seen.has(x.route)) continue;
      seen.add(x.route);
      if (!lifted.has(up[0])) lifted.set(up[0], []);
      lifted.get(up[0]).push([up[1], up[2]]);
    }
    layoutScope(root, lifted);
    absolute(root, 0, 0);
  }

  function drawSign(parent, x, y, open, item) {
    const g = svgEl('g', {class: 'sign', transform: `translate(${x} ${y})`}, parent);
    svgEl('circle', {r: 7.5}, g);
    svgEl('path', {d: open ? 'M-3.5 0H3.5' : 'M-3.5 0H3.5M0 -3.5V3.5'}, g);
    svgEl('title', {}, g, open ? 'Collapse' : 'Expand');
    g.addEventListener('click', (event) => { event.stopPropagation(); toggle(item); });
  }

  function drawItem(item) {
    const isScope = item.kind === 'scope';
    const g = svgEl('g', {class: `item ${item.kind}`, transform: `translate(${item.ax} ${item.ay})`,
      'data-name': isScope ? item.path : item.name, 'data-kind': item.kind}, $('items'));
    const body = svgEl('rect', {class: 'body', width: item.w, height: item.h, rx: isScope ? 8 : 6}, g);
    if (!isScope) body.style.fill = colourOf(item.device);
    svgEl('text', {x: 10, y: 16}, g, item.text);
    svgEl('text', {class: 'op', x: 10, y: 29}, g, item.sub);
    svgEl('title', {}, g, isScope ? item.path || item.label : `${item.name} (${item.op})\n${deviceName(item.device)}`);
    if (isScope) {
      // How its nodes are spread, as a bar.
      const byKey = new Map();
      for (const [d, k] of item.devices) byKey.set(keyOf(d), (byKey.get(keyOf(d)) || 0) + k);
      let x = 10;
      for (const key of [...byKey.keys()].sort()) {
        const w = (item.w - 20) * byKey.get(key) / item.size;
        const part = svgEl('rect', {x, y: item.h - 10, width: w, height: 5}, g);
        part.style.fill = colours.get(key).colour;
        svgEl('title', {}, part, `${key}: ${byKey.get(key)} nodes`);
        x += w;
      }
      drawSign(g, item.w - 14, 14, false, item);
      g.addEventListener('dblclick', () => toggle(item));
    }
    g.addEventListener('click', (event) => { event.stopPropagation(); select({item}); });
    elements.set(item.id, g);
  }

  function drawScope(scope) {
    if (scope !== root) {
      const g = svgEl('g', {class: 'box', transform: `translate(${scope.ax} ${scope.ay})`,
        'data-name': scope.path, 'data-kind': 'open'}, $('boxes'));
      svgEl('rect', {class: 'body', width: scope.w, height: scope.h, rx: 10}, g);
      svgEl('rect', {class: 'head', width: scope.w, height: HEAD, rx: 10}, g);
      svgEl('text', {x: 28, y: 17}, g, shorten(scope.label, 60));
      drawSign(g, 14, 13, true, scope);
      g.querySelector('.head').addEventListener('click', (event) => { event.stopPropagation(); select({item: scope}); });
      g.querySelector('.head').addEventListener('dblclick', () => toggle(scope));
      elements.set(scope.id, g);
    }
    for (const c of scope.children) {
      if (c.kind === 'scope' && c.open) drawScope(c); else drawItem(c);
    }
  }

  function pathOf(x) {
    const from = [x.a.ax + x.a.w, x.a.ay + x.a.h / 2], to = [x.b.ax, x.b.ay + x.b.h / 2];
    const bends = (x.scope && x.scope.routes.get(x.route)) || [];
    const points = [from, ...bends.map((b) => [x.scope.ax + PAD + b.x, x.scope.ay + HEAD + 6 + b.y + 2]), to];
    let d = `M${from[0]} ${from[1]}`;
    for (let i = 1; i < points.length; ++i) {
      const [x0, y0] = points[i - 1], [x1, y1] = points[i];
      const reach = x1 > x0 ? (x1 - x0) / 2 : 40 + Math.abs(y1 - y0) / 4;
      d += `C${x0 + reach} ${y0} ${x1 - reach} ${y1} ${x1} ${y1}`;
    }
    const m = points.length >> 1;
    const middle = points.length % 2 ? points[m]
      : [(points[m - 1][0] + points[m][0]) / 2, (points[m - 1][1] + points[m][1]) / 2];
    return {d, middle};
  }

  function draw() {
    for (const id of ['boxes', 'edges', 'items', 'labels']) $(id).textContent = '';
    elements.clear();
    drawScope(root);
    const labelled = bundles.filter((x) => x.cut && !x.control).length <= 250;
    for (const x of bundles) {
      const {d, middle} = pathOf(x);
      x.line = svgEl('path', {class: `edge${x.control ? ' control' : ''}${x.cut ? ' cut' : ''}`, d}, $('edges'));
      const hit = svgEl('path', {class: 'hit', d}, $('edges'));
      hit.addEventListener('click', (event) => { event.stopPropagation(); select({bundle: x}); });
      x.label = null;
      if (!x.cut) continue;
      const sum = sumBytes(x.edges);
      const width = sum.bytes > 0 ? Math.min(5, 1.2 + Math.log2(1 + sum.bytes / 1024) / 4) : 1.2;
      x.line.style.strokeWidth = width;
      if (sum.tensors && labelled) {
        x.label = svgEl('text', {class: 'bytes', x: middle[0], y: middle[1] - 4}, $('labels'), sumText(sum));
      }
    }
    mark();
  }

  function mark() {
    for (const [, e] of elements) e.classList.remove('selected', 'faded');
    const item = selected && selected.item;
    if (item) {
      const shown = item.kind === 'node' ? visibleOf(item) : item;
      const e = elements.get(shown.id);
      if (e) e.classList.add('selected');
    }
    const inside = (v) => v === item || ancestors(v).includes(item);
    for (const x of bundles) {
      const on = selected && (selected.bundle ? selected.bundle.a === x.a && selected.bundle.b === x.b
        : inside(x.a) || inside(x.b));
      x.line.classList.toggle('on', Boolean(on));
      x.line.classList.toggle('faded', Boolean(selected && !on));
      if (x.label) x.label.classList.toggle('faded', Boolean(selected && !on));
    }
  }

  function refresh(anchor) {
    const before = anchor && anchor.ax !== undefined ? [anchor.ax, anchor.ay] : null;
    layout();
    draw();
    if (before) {  // what was clicked stays under the pointer
      view.x += (before[0] - anchor.ax) * view.k;
      view.y += (before[1] - anchor.ay) * view.k;
      applyView();
    }
  }

  function toggle(scope) {
    scope.open = !scope.open;
    refresh(scope);
    showDetails();
  }

  function fit(least) {
    const box = $('view').getBoundingClientRect();
    view.k = Math.max(least, Math.min(1.25, (box.width - 40) / root.w, (box.height - 40) / root.h));
    view.x = Math.max(20, (box.width - root.w * view.k) / 2);
    view.y = (box.height - root.h * view.k) / 2;
    applyView();
  }

  function zoom(factor, x, y) {
    const k = Math.max(0.03, Math.min(4, view.k * factor));
    view.x = x - (x - view.x) * k / view.k;
    view.y = y - (y - view.y) * k / view.k;
    view.k = k;
    applyView();
  }

  // Opens the scopes around an item and brings it into the middle.
  function reveal(item) {
    let changed = false;
    for (const p of ancestors(item)) { changed = changed || !p.open; p.open = true; }
    if (changed) refresh();
    const box = $('view').getBoundingClientRect();
    view.k = Math.max(view.k, 0.8);
    view.x = box.width / 2 - (item.ax + item.w / 2) * view.k;
    view.y = box.height / 2 - (item.ay + item.h / 2) * view.k;
    applyView();
    select({item});
  }

  // ---- The side.
  const details = $('details');
  function select(what) { selected = what; mark(); showDetails(); }
  function row(table, name, fill) {
    const tr = htmlEl('tr', '', undefined, table);
    htmlEl('th', '', name, tr);
    const td = htmlEl('td', '', undefined, tr);
    if (typeof fill === 'function') fill(td); else td.textContent = fill;
  }
  function chip(d, parent) {
    htmlEl('span', 'chip', '', parent).style.background = colourOf(d);
  }
  function linkTo(n, text, parent) {
    const a = htmlEl('a', '', text, parent);
    a.addEventListener('click', () => reveal(n));
    return a;
  }
  const tensorText = (n, slot) => {
    if (slot < 0) return 'control';
    const b = n.bytes[slot];
    const shape = n.shapes[slot] === undefined ? '' : data.strings[n.shapes[slot]];
    return `${shape} ${b >= 0 ? formatBytes(b) : '? B'}`.trim();
  };
  function edgeList(title, list, endOf) {
    if (!list.length) return;
    htmlEl('h2', '', `${title} (${list.length})`, details);
    const table = htmlEl('table', '', undefined, details);
    for (const e of list.slice(0, 200)) {
      const tr = htmlEl('tr', '', undefined, table);
      const td = htmlEl('td', '', undefined, tr);
      const end = endOf(e);
      chip(end.device, td);
      linkTo(end, e.slot > 0 && end === e.src ? `${end.name}:${e.slot}` : end.name, td);
      const right = htmlEl('td', 'number soft', tensorText(e.src, e.slot), tr);
      if (crosses(e)) { htmlEl('span', '', ' ', right); htmlEl('span', 'badge', 'cut', right); }
    }
    if (list.length > 200) htmlEl('p', 'soft', `and ${list.length - 200} more`, details);
  }
  function whyBlock(lines, parent) {
    const block = htmlEl('div', 'why mono', undefined, parent);
    for (const s of lines) {
      for (const line of data.strings[s].split('\n')) {
        const text = line.trimStart();
        const p = htmlEl('p', /^rule \d+/.test(text) ? 'rule' : '', text, block);
        p.style.paddingLeft = `${(line.length - text.length) * 6 + 14}px`;  // what is wrapped hangs
      }
    }
  }
  function showNode(n) {
    htmlEl('p', 'name', n.name, details);
    htmlEl('p', 'soft', n.op, details).style.margin = '0 0 6px';
    const table = htmlEl('table', '', undefined, details);
    row(table, 'device', (td) => { chip(n.device, td); td.append(deviceName(n.device)); });
    n.bytes.forEach((b, slot) => row(table, `output ${slot}`, tensorText(n, slot)));
    htmlEl('h2', '', 'Why it is there', details);
    const why = htmlEl('div', '', undefined, details);
    why.id = 'why';
    whyBlock(n.why, why);
    if (n.leader >= 0 && n.leader !== n.id) {
      const leader = nodes[n.leader];
      const p = htmlEl('p', 'soft', 'the group: ', why);
      linkTo(leader, leader.name, p);
      whyBlock(leader.why, why);
    }
    edgeList('Inputs', edges.filter((e) => e.dst === n), (e) => e.src);
    edgeList('Read by', n.outputs, (e) => e.dst);
    if (!n.attrs.length) return;
    htmlEl('h2', '', 'Attributes', details);
    const attrs = htmlEl('table', 'mono', undefined, details);
    attrs.id = 'attrs';
    for (const a of n.attrs) {
      const text = data.strings[a];
      const cut = text.indexOf('=');
      row(attrs, text.slice(0, cut), text.slice(cut + 1));
    }
  }
  function showScope(s) {
    htmlEl('p', 'name', s.made ? s.label : s.path || s.label, details);
    htmlEl('p', 'soft', `${s.size} nodes`, details).style.margin = '0 0 6px';
    const button = htmlEl('button', '', s.open ? 'Collapse' : 'Expand', details);
    button.addEventListener('click', () => toggle(s));
    htmlEl('h2', '', 'Nodes by device', details);
    const table = htmlEl('table', '', undefined, details);
    for (const [d, k] of [...s.devices].sort((a, b) => b[1] - a[1])) {
      const tr = htmlEl('tr', '', undefined, table);
      const td = htmlEl('td', '', undefined, tr);
      chip(d, td);
      td.append(deviceName(d));
      htmlEl('td', 'number', k, tr);
    }
    const inside = (n) => ancestors(n).includes(s);
    const border = edges.filter((e) => crosses(e) && inside(e.src) !== inside(e.dst));
    edgeList('Comes from another device', border.filter((e) => inside(e.dst)), (e) => e.src);
    edgeList('Goes to another device', border.filter((e) => inside(e.src)), (e) => e.dst);
  }
  function showBundle(x) {
    htmlEl('p', 'name', `${x.a.label} \u2192 ${x.b.label}`, details);
    const sum = sumBytes(x.edges);
    htmlEl('p', 'soft', x.cut ? `${sum.tensors} tensors between ${colourBy}s, ${sumText(sum)}` +
      (sum.controls ? `, ${sum.controls} control edges` : '') : `${x.edges.length} edges, none leaves its ${colourBy}`, details);
    edgeList('From', x.edges, (e) => e.src);
    edgeList('To', x.edges, (e) => e.dst);
  }
  function showDetails() {
    details.textContent = '';
    $('side').scrollTop = 0;
    if (!selected) {
      htmlEl('p', 'name', `${nodes.length} nodes, ${edges.length} edges`, details);
      htmlEl('p', 'soft', 'Click a node, a scope or an edge. Double click or + opens a scope; the wheel zooms, ' +
        'dragging moves. Orange edges cross ' + colourBy + 's and say how many bytes they carry.', details);
    } else if (selected.bundle) showBundle(selected.bundle);
    else if (selected.item.kind === 'scope') showScope(selected.item);
    else showNode(selected.item);
  }
  function showLegend() {
    const legend = $('legend');
    legend.textContent = '';
    htmlEl('h2', '', colourBy === 'device' ? 'Devices' : 'Tasks', legend);
    const table = htmlEl('table', '', undefined, legend);
    for (const [key, c] of colours) {
      const tr = htmlEl('tr', '', undefined, table);
      const td = htmlEl('td', '', undefined, tr);
      htmlEl('span', 'chip', '', td).style.background = c.colour;
      td.append(key);
      htmlEl('td', 'number', c.nodes, tr);
    }
    const links = $('links');
    links.textContent = '';
    const byLink = new Map();
    for (const e of edges) {
      if (!crosses(e)) continue;
      const key = keyOf(e.src.device) + '\n' + keyOf(e.dst.device);
      if (!byLink.has(key)) byLink.set(key, []);
      byLink.get(key).push(e);
    }
    if (!byLink.size) return;
    htmlEl('h2', '', 'Links, if the whole graph runs once', links);
    const list = htmlEl('table', '', undefined, links);
    const sorted = [...byLink].map(([key, of]) => [key, of, sumBytes(of)]).sort((a, b) => b[2].bytes - a[2].bytes);
    for (const [key, of, sum] of sorted) {
      const [from, to] = key.split('\n');
      const tr = htmlEl('tr', 'row', undefined, list);
      const td = htmlEl('td', '', undefined, tr);
      htmlEl('span', 'chip', '', td).style.background = colours.get(from).colour;
      td.append(`${from} \u2192 `);
      htmlEl('span', 'chip', '', td).style.background = colours.get(to).colour;
      td.append(to);
      htmlEl('td', 'number', sumText(sum), tr);
      tr.addEventListener('click', () => {
        const shortName = (s) => s.replace(/^\/job:/, '').replace(/\/replica:0\/task:/, ' ');
        select({bundle: {a: {label: shortName(from)}, b: {label: shortName(to)}, edges: of, cut: true}});
      });
    }
  }

  // ---- Search.
  const input = $('search'), results = $('results');
  let found = [], at = -1;
  function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.textContent = '';
    results.hidden = !words.length;
    found = [];
    at = -1;
    if (!words.length) return;
    const matches = nodes.filter((n) => {
      const text = (n.name + ' ' + n.op).toLowerCase();
      return words.every((w) => text.includes(w));
    });
    matches.sort((a, b) => a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
    found = matches.slice(0, 50);
    for (const n of found) {
      const li = htmlEl('li', 'result', undefined, results);
      const name = htmlEl('span', '', undefined, li);
      chip(n.device, name);
      name.append(n.name);
      htmlEl('span', 'soft', n.op, li);
      li.addEventListener('mousedown', (event) => { event.preventDefault(); choose(n); });
    }
    if (!matches.length) htmlEl('li', 'note', 'no node has all of this', results);
    if (matches.length > found.length) htmlEl('li', 'note', `and ${matches.length - found.length} more`, results);
  }
  function choose(n) { results.hidden = true; input.blur(); reveal(n); }
  input.addEventListener('input', search);
  input.addEventListener('focus', search);
  input.addEventListener('blur', () => { results.hidden = true; });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { input.value = ''; search(); input.blur(); }
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      at = Math.max(0, Math.min(found.length - 1, at + (event.key === 'ArrowDown' ? 1 : -1)));
      [...results.querySelectorAll('.result')].forEach((li, i) => {
        li.classList.toggle('on', i === at);
        if (i === at) li.scrollIntoView({block: 'nearest'});
      });
    }
    if (event.key === 'Enter' && found.length) choose(found[Math.max(0, at)]);
  });

  // ---- Events.
  const svg = $('view');
  let drag = null;
  svg.addEventListener('pointerdown', (event) => {
    if (event.button === 0) drag = {x: event.clientX, y: event.clientY, moved: false};
  });
  svg.addEventListener('pointermove', (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    if (!drag.moved) { svg.setPointerCapture(event.pointerId); svg.classList.add('dragging'); }
    drag = {x: event.clientX, y: event.clientY, moved: true};
    view.x += dx;
    view.y += dy;
    applyView();
  });
  svg.addEventListener('pointerup', () => {
    svg.classList.remove('dragging');
    const moved = drag && drag.moved;
    drag = null;
    if (moved) svg.addEventListener('click', (event) => event.stopPropagation(), {capture: true, once: true});
  });
  svg.addEventListener('click', () => select(null));
  svg.addEventListener('wheel', (event) => {
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    const step = event.deltaMode === 1 ? event.deltaY * 24 : event.deltaY;
    zoom(Math.exp(-step * 0.0015), event.clientX - box.left, event.clientY - box.top);
  }, {passive: false});
  const centre = (factor) => () => {
    const box = svg.getBoundingClientRect();
    zoom(factor, box.width / 2, box.height / 2);
  };
  $('in').addEventListener('click', centre(1.3));
  $('out').addEventListener('click', centre(1 / 1.3));
  $('fit').addEventListener('click', () => fit(0.05));
  $('collapse').addEventListener('click', () => {
    for (const s of scopes) s.open = s === root;
    refresh();
    fit(0.6);
  });
  $('control').addEventListener('change', () => refresh());
  $('colour').addEventListener('change', (event) => {
    colourBy = event.target.value;
    assignColours();
    showLegend();
    refresh();
    showDetails();
  });
  document.addEventListener('keydown', (event) => {
    if (document.activeElement === input) return;
    if (event.key === '/') { event.preventDefault(); input.focus(); input.select(); }
    if (event.key === 'Escape') select(null);
  });

  // ---- At first: small graphs open, large ones closed.
  if (nodes.length <= 60) for (const s of scopes) s.open = true;
  if (root.children.length === 1 && root.children[0].kind === 'scope') root.children[0].open = true;
  $('title').textContent = data.title;
  document.title = `${data.title} \u2013 Millrace plan`;
  assignColours();
  showLegend();
  showDetails();
  layout();
  draw();
  fit(0.6);  // what is too large for the window begins at its left, where it can be read
  const wanted = decodeURIComponent(location.hash.slice(1));
  const start = wanted && nodes.find((n) => n.name === wanted);
  if (start) reveal(start);
})();
