package versus

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// system is what a user would run instead of the service.
type system struct {
	name, base string
	// needs are the packages of the distribution, by the programs and files that it takes
	// of them.
	needs map[string]string
	lab.System
}

// redisPrograms are the server, and what fills it and sends it load.
var redisPrograms = map[string]string{"redis-server": "redis-server", "redis-benchmark": "redis-tools", "redis-cli": "redis-tools"}

// None of Redis's saves a snapshot meanwhile, which would be another process, and none
// writes its log anew.
const redis = "redis-server --save '' --auto-aof-rewrite-percentage 0 --loglevel warning --dir '{dir}'"

// systems are all there are; javaDir is where make has built the server in Java.
func systems(javaDir string) []system {
	local := " --bind 127.0.0.1 --port {port} --appendonly "
	return []system{
		{"redis", "spillway", redisPrograms, lab.System{
			Command: "exec " + redis + local + "no", Fill: fillRedis, Send: redisBenchmark,
		}},
		{"redis, AOF each second", "spillway, synced each second", redisPrograms, lab.System{
			Command: "exec " + redis + local + "yes --appendfsync everysec", Fill: fillRedis, Send: redisBenchmark,
		}},
		{"redis, AOF always", "spillway, always synced", redisPrograms, lab.System{
			Command: "exec " + redis + local + "yes --appendfsync always", Fill: fillRedis, Send: redisBenchmark,
		}},
		{"webdis", "spillway", map[string]string{"redis-server": "redis-server", "redis-cli": "redis-tools", "webdis": "webdis"}, lab.System{
			Command: redis + " --port 0 --unixsocket '{dir}/redis' --appendonly no & " +
				"until [ -S '{dir}/redis' ]; do sleep 0.05; done; " +
				`echo '{"redis_host":"{dir}/redis","http_host":"127.0.0.1","http_port":{port},"threads":2,"pool_size":32,"daemonize":false,"verbosity":0,"logfile":"/dev/null"}' >'{dir}/webdis.json'; ` +
				"exec webdis '{dir}/webdis.json'",
			Fill: fillRedis, Targets: webdisTargets,
		}},
		{"etcd, its gateway", "spillway, always synced", map[string]string{"etcd": "etcd-server"}, lab.System{
			Command: "exec etcd --data-dir '{dir}/etcd' --log-level error --listen-client-urls http://127.0.0.1:{port} " +
				"--advertise-client-urls http://127.0.0.1:{port} --listen-peer-urls http://127.0.0.1:0 " +
				"--initial-advertise-peer-urls http://127.0.0.1:0 --initial-cluster default=http://127.0.0.1:0",
			Fill: fillEtcd, Targets: etcdTargets,
		}},
		{"one-nio and RocksDB", "spillway", map[string]string{"java": "openjdk-17-jre-headless", filepath.Join(javaDir, "Server.class"): "maven openjdk-17-jdk-headless"}, lab.System{
			Command: "exec java -Xmx2g -cp '" + javaDir + ":" + javaDir + "/*' Server {port} '{dir}'", Fill: warmJava,
		}},
	}
}

// missing returns the packages of what a system needs and has not.
func (s *system) missing(has func(name string) bool) (packages []string) {
	for _, name := range slices.Sorted(maps.Keys(s.needs)) {
		if !has(name) && !slices.Contains(packages, s.needs[name]) {
			packages = append(packages, s.needs[name])
		}
	}
	return packages
}

func isThere(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil || exists(name)
}

// ofSystems sends each as much as it can serve, and half of that.
func (q *Question) ofSystems(s *Setup) {
	q.store = fmt.Sprintf("%d values of 100 bytes.", s.Keys)
	for _, own := range [][2]string{{"spillway", "never"}, {"spillway, synced each second", "interval:1s"}, {"spillway, always synced", "always"}} {
		q.strategy(s, own[0], "spillway", "auto", "SPILLWAY_SYNC="+own[1])
	}
	has := s.Has
	if has == nil {
		has = isThere
	}
	for _, system := range systems(s.Java) {
		if packages := system.missing(has); len(packages) > 0 {
			q.store += fmt.Sprintf(" *%s* is missing: apt-get install %s.", system.name, strings.Join(packages, " "))
			continue
		}
		q.Contestants = append(q.Contestants, lab.Contestant{Name: system.name, Base: system.base, System: &system.System})
	}
	for _, op := range []workload.Op{workload.Get, workload.Put} {
		q.load(op, 64)
		q.load(op, 64).Half = true
	}
}

// hundred is the value that is written where the generator does not make it.
var hundred = strings.Repeat("0123456789", 10)

func redisKey(n uint64) string { return fmt.Sprintf("key:%012d", n) }

// fillRedis writes the keys that redis-benchmark asks for, from within.
func fillRedis(ctx context.Context, at lab.Place, keys uint64) error {
	where := []string{"-p", at.Port}
	if socket := filepath.Join(at.Dir, "redis"); exists(socket) {
		where = []string{"-s", socket}
	}
	const script = "for i = 0, ARGV[1] - 1 do redis.call('SET', string.format('key:%012d', i), ARGV[2]) end"
	said, err := exec.CommandContext(ctx, "redis-cli", append(where, "EVAL", script, "0", strconv.FormatUint(keys, 10), hundred)...).CombinedOutput()
	if said = bytes.TrimSpace(said); err == nil && len(said) > 0 {
		err = errors.New("the script should answer nothing")
	}
	if err != nil {
		return fmt.Errorf("redis-cli: %w: %s", err, said)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// redisBenchmark sends a closed loop by Redis's own benchmark.
func redisBenchmark(ctx context.Context, at lab.Place, o *workload.Options) (*result.Result, error) {
	args := []string{"-h", "127.0.0.1", "-p", at.Port, "-c", strconv.Itoa(o.Connections), "-n", strconv.FormatUint(o.Count, 10),
		"-r", strconv.FormatUint(o.Keys, 10), "--csv", "GET", "key:__rand_int__"}
	if o.Mix.Put > 0 {
		args = append(args[:len(args)-2], "SET", "key:__rand_int__", hundred)
	}
	said, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: %w", err)
	}
	return readBenchmark(said, o.Count)
}

// readBenchmark reads what redis-benchmark says of so many requests.
func readBenchmark(said []byte, count uint64) (*result.Result, error) {
	rows, err := csv.NewReader(bytes.NewReader(said)).ReadAll()
	if err == nil && (len(rows) != 2 || len(rows[1]) < 8) {
		err = errors.New("not a head and a row of 8 fields")
	}
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark said %q: %w", said, err)
	}
	var v [8]float64 // name, requests/s, and of the latency mean, least, p50, p95, p99, greatest
	for i := 1; i < len(v); i++ {
		if v[i], err = strconv.ParseFloat(rows[1][i], 64); err != nil {
			return nil, fmt.Errorf("redis-benchmark said %q: %w", said, err)
		}
	}
	return &result.Result{
		Seconds: float64(count) / v[1], Status: map[string]int64{"200": int64(count)},
		Latency: result.Percentiles{Mean: v[2], P50: v[4], P99: v[6], Max: v[7], Count: int64(count)},
	}, nil
}

// targets returns a request for each key.
func targets(keys uint64, request func(key string) workload.Target) []workload.Target {
	all := make([]workload.Target, keys)
	for i := range all {
		all[i] = request(redisKey(uint64(i)))
	}
	return all
}

func webdisTargets(op workload.Op, keys uint64) []workload.Target {
	return targets(keys, func(key string) workload.Target {
		if op == workload.Put {
			return workload.Target{Name: "SET", Method: "PUT", URL: "/SET/" + key, Body: []byte(hundred)}
		}
		return workload.Target{Name: "GET", Method: "GET", URL: "/GET/" + key + ".txt"}
	})
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func etcdTargets(op workload.Op, keys uint64) []workload.Target {
	return targets(keys, func(key string) workload.Target {
		if op == workload.Put {
			return workload.Target{Name: "put", Method: "POST", URL: "/v3/kv/put", Body: []byte(etcdPut(key))}
		}
		return workload.Target{Name: "range", Method: "POST", URL: "/v3/kv/range", Body: []byte(`{"key":"` + inBase64(key) + `"}`)}
	})
}

func etcdPut(key string) string {
	return `{"key":"` + inBase64(key) + `","value":"` + inBase64(hundred) + `"}`
}

// fillEtcd writes the keys in transactions of as many as etcd takes.
func fillEtcd(ctx context.Context, at lab.Place, keys uint64) error {
	const most = 128
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for from := uint64(0); from < keys; from += most {
		var puts []string
		for key := from; key < min(from+most, keys); key++ {
			puts = append(puts, `{"requestPut":`+etcdPut(redisKey(key))+"}")
		}
		body := `{"success":[` + strings.Join(puts, ",") + "]}"
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+at.Port+"/v3/kv/txn", strings.NewReader(body))
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		said, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		if err != nil {
			return fmt.Errorf("etcd: %w: %s", err, said)
		}
	}
	return nil
}

// warmJava writes and reads all keys until the code is compiled.
func warmJava(ctx context.Context, at lab.Place, keys uint64) error {
	for range 3 {
		for _, mix := range []workload.Mix{{Put: 1}, {Get: 1}} {
			found, err := generator.Run(ctx, workload.Options{
				URL: "http://127.0.0.1:" + at.Port, Connections: 64, Keys: keys, Count: keys, Mix: mix, Distribution: workload.Sequential, NoProfiles: true,
			})
			if err != nil {
				return err
			}
			if found.Misses > 0 || found.Served() < int64(keys) {
				return fmt.Errorf("of %d keys %d were served, and %d are not there (%s)", keys, found.Served(), found.Misses, found.Partial)
			}
		}
	}
	return nil
}
