# The table of a comment in a page of docs, from a comparison.json. See docs/figures.sh.

def fixed($n): (. * pow(10; $n) | round | tostring) as $s
	| if $n == 0 then $s else ("0" * ($n + 1 - ($s | length)) // "") + $s | .[:-$n] + "." + .[-$n:] end;

def scaled(metric):
	if (metric | endswith("_ms")) and . >= 1000 then (. / 1000 | fixed(if . < 10 then 2 else 0 end)) + " s"
	elif (metric | endswith("_rps")) then fixed(0)
	else fixed(if . < 1 then 2 elif . < 10 then 1 else 0 end) end;

def possible($all): .metrics.offered_rps.median as $asked | [$asked, $all.capacity_rps[.load] // $asked] | min;

def figure($all; $share; name):
	{good: "goodput_rps", sent_good: "sent_goodput_rps"}[name] as $goodput
	| ($goodput // name) as $metric
	| if name == "good%" then .shares[$share] | 100 * .good / .requests | fixed(0)
	elif .metrics[$metric] == null then "–"
	elif $goodput then .metrics[$metric].median / possible($all) | fixed(2)
	else .metrics[$metric].median | scaled($metric) end;

def cell($all; $share):
	. as $g | reduce ($cells | match("{([^}]+)}"; "g")) as $m ($cells; sub("{" + $m.captures[0].string + "}"; $g | figure($all; $share; $m.captures[0].string)))
	+ if (.metrics.generator_late_p99_ms.high // 0) > $all.scenario.slo / 1e7 then " †" else "" end;

def said(name): if name == "strategy" then "`" + ltrimstr("service:") + "`" elif name == "rate" then sub("x"; " ×") else tostring end;

def words($s): $s | split(" ");

def line: "| " + join(" | ") + " |";

def unique_in_order: reduce .[] as $v ([]; if index([$v]) then . else . + [$v] end);

. as $all
| if .partial then error("it is partial: " + .partial) else . end
| [$only | split("; ")[] | split("=") | {name: .[0], values: (.[1:] | join("=") | split("|"))}] as $wanted
| [.groups[] | . as $g | select(all($wanted[]; . as $w | $w.values | index([$g.combination[$w.name] | tostring])))
	| (if words($columns) | index("share") then .shares | keys[] else "" end) as $share
	| (.combination + {share: ($share | ltrimstr("client ") | ltrimstr("priority "))}) as $settings
	| {row: [words($rows)[] | . as $n | $settings[$n] | said($n)], column: [words($columns)[] | . as $n | $settings[$n] | said($n)] | join(" "),
		text: cell($all; $share)}] as $cells_of
| ([$cells_of[].column] | unique_in_order) as $heads
# Rows of the same figures are one, but for the last of their names.
| ([$cells_of[].row] | unique_in_order
	| map(. as $r | {names: $r[:-1], last: $r[-1], figures: [$heads[] as $c | first($cells_of[] | select(.row == $r and .column == $c) | .text) // ""]})
	| reduce .[] as $r ([]; (map({names, figures} == ($r | {names, figures})) | index(true)) as $i
		| if $i then .[$i].last += ", " + $r.last else . + [$r] end)) as $lines
| ($all.version // $all.lab // "no commit") as $built
| (words($rows) | map("")) + $heads | line, (map("---") | line),
	($lines[] | .names + [.last] + .figures | line),
	if any($cells_of[].text; endswith("†")) then "\n†: in one of the runs the generator was late." else empty end,
	"\n*" + ($built | (capture("\\(commit (?<c>[^ ]+, go[^ ]+)\\)").c) // .) + ", " + $all.finished[:10] + ", "
	+ (if $built | startswith("simulated") then "in virtual time" else "\($all.machine.cpus) × \($all.machine.cpu)" end) + "*"
