//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is this one as long as the test lasts: its files, its systemd, a network of its own.
// What changes there is in memory.
type machine struct {
	t   *testing.T
	pid string // of its first process
}

func bootMachine(t *testing.T) *machine {
	t.Helper()
	script, err := filepath.Abs("testdata/boot.sh")
	require.NoError(t, err)
	said := new(output)
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts", "--ipc", "--net", "sh", script, t.TempDir())
	cmd.Stdout, cmd.Stderr = said, said
	exited := make(chan struct{})
	require.NoError(t, startProcess(cmd, syscall.SIGKILL, exited), "namespaces take root")
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	m := &machine{t: t}
	deadline := time.Now().Add(patience)
	for {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		if m.pid = strings.TrimSpace(string(children)); m.pid != "" {
			if out, err := m.command("systemctl is-active sysinit.target").Output(); err == nil && string(out) == "active\n" {
				return m
			}
		}
		select {
		case <-exited:
			require.FailNow(t, "systemd does not start here (it takes root, cgroups and overlay file systems)", said.String())
		case <-time.After(10 * time.Millisecond):
			require.True(t, time.Now().Before(deadline), said.String())
		}
	}
}

func (m *machine) command(script string) *exec.Cmd {
	return exec.CommandContext(m.t.Context(), "nsenter", "-t", m.pid, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", script)
}

// do runs a script there, which has to succeed, and returns what it says.
func (m *machine) do(script string) string {
	m.t.Helper()
	cmd := m.command(script)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		log, _ := m.command("journalctl --no-pager -n 30; systemctl status --no-pager 'spillway*'").CombinedOutput()
		require.NoError(m.t, err, "%s\n%s%s\n%s", script, out.String(), said.String(), log)
	}
	return strings.TrimSpace(out.String() + said.String())
}

// eventually runs a script until it succeeds.
func (m *machine) eventually(script string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.command(script).Run() == nil }, patience, 20*time.Millisecond, script)
}

// packaged and repackaged are the packages of two versions, without .deb or .rpm.
var (
	packaged   build = sync.OnceValues(func() (string, error) { return makePackages("v1.2.3") })
	repackaged build = sync.OnceValues(func() (string, error) { return makePackages("v1.10.0") })
)

func makePackages(version string) (string, error) {
	binary, err := plain()
	if err != nil {
		return "", err
	}
	build := exec.Command("../deploy/packages/build.sh", binary, version, runtime.GOARCH, binaries)
	build.Env = append(os.Environ(), "SPILLWAY="+binary)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("packages: %w\n%s", err, out)
	}
	return filepath.Join(binaries, fmt.Sprintf("spillway-%s-linux-%s", version, runtime.GOARCH)), nil
}

// The package is installed, started, upgraded, removed and purged by Debian's own tools and
// systemd: who installs it has a user, a unit that can be reloaded, a manual page and
// completions; a stop loses nothing, and neither does a removal.
func TestPackages_Debian(t *testing.T) {
	t.Parallel()
	deb, err := packaged()
	require.NoError(t, err)
	newer, err := repackaged()
	require.NoError(t, err)
	m := bootMachine(t)
	install := func(file string) string {
		content, err := os.ReadFile(file + ".deb")
		require.NoError(t, err)
		cmd := m.command("cat >/tmp/spillway.deb && dpkg -i /tmp/spillway.deb")
		cmd.Stdin = bytes.NewReader(content)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	install(deb)
	require.Contains(t, m.do("dpkg -s spillway"), "Version: 1.2.3-1\n")
	require.Regexp(t, `^spillway:x:\d+:\d+:Spillway:/var/lib/spillway:/usr/sbin/nologin$`, m.do("getent passwd spillway"))
	require.Equal(t, "spillway spillway 700", m.do("stat -c '%U %G %a' /var/lib/spillway"))
	require.Equal(t, "root spillway 640\nroot spillway 640", m.do("stat -c '%U %G %a' /etc/spillway/*"))
	require.Equal(t, "inactive", m.do("systemctl is-active spillway || true"), "it has to be configured first")
	require.Contains(t, m.do("spillway config check /etc/spillway/spillway.yaml; spillway config check /etc/spillway/proxy.yaml"), "is right")
	page := m.do("MANPATH=/usr/share/man man --warnings -E UTF-8 spillway | col -b")
	require.Contains(t, page, "SPILLWAY_QUEUE_CAPACITY")
	require.NotContains(t, page, "warning")
	require.Contains(t, m.do("ls /usr/share/bash-completion/completions/spillway /usr/share/zsh/site-functions/_spillway /usr/share/fish/vendor_completions.d/spillway.fish"), "_spillway")

	m.do("systemctl enable --now spillway")
	m.eventually("spillway healthcheck")
	require.Equal(t, "spillway", m.do("ps -o user= -p $(systemctl show -P MainPID spillway)"))
	const url = "http://127.0.0.1:8080/v0/entity?id=k"
	require.Equal(t, "201", m.do("curl -sS -o /dev/null -w '%{http_code}' -X PUT -d value '"+url+"'"))

	// Settings are reloaded; a file that is wrong changes nothing.
	m.do("echo 'strategy: lifo' >>/etc/spillway/spillway.yaml && systemctl reload spillway")
	m.eventually(`curl -s http://127.0.0.1:6060/strategy | grep -q '"strategy":"lifo"'`)
	m.do("cp /etc/spillway/spillway.yaml /tmp/good && echo 'workers: many' >>/etc/spillway/spillway.yaml && systemctl reload spillway")
	m.eventually(`journalctl -u spillway | grep -q 'spillway.yaml:[0-9]*: bad value .*many'`)
	m.do("cp /tmp/good /etc/spillway/spillway.yaml && spillway healthcheck")

	// An upgrade keeps the data and the settings, and the service runs on by the new version.
	before := m.do("systemctl show -P MainPID spillway")
	install(newer)
	m.eventually("spillway healthcheck")
	require.NotEqual(t, before, m.do("systemctl show -P MainPID spillway"))
	require.Equal(t, "value", m.do("curl -sS '"+url+"'"))
	require.Contains(t, m.do("cat /etc/spillway/spillway.yaml"), "strategy: lifo")

	// The proxy beside it.
	m.do(`sed -i -e 's/8080/8081/; s/6060/6061/; s/3000/8080/' /etc/spillway/proxy.yaml && systemctl start spillway-proxy`)
	m.eventually("test \"$(curl -s 'http://127.0.0.1:8081/v0/entity?id=k')\" = value")

	m.do("dpkg -r spillway")
	require.Equal(t, "inactive\ninactive", m.do("systemctl is-active spillway spillway-proxy || true"))
	require.Equal(t, "gone", m.do("test -e /usr/bin/spillway || test -e /usr/lib/systemd/system/spillway.service || echo gone"))
	require.Contains(t, m.do("cat /etc/spillway/spillway.yaml"), "strategy: lifo")
	install(newer)
	m.do("systemctl start spillway")
	m.eventually("spillway healthcheck")
	require.Equal(t, "value", m.do("curl -sS '"+url+"'"))
	require.Contains(t, m.do("dpkg --purge spillway"), "The data stay in /var/lib/spillway")
	require.Equal(t, "gone", m.do("test -e /etc/spillway/spillway.yaml || echo gone"))
	require.NotEmpty(t, m.do("ls /var/lib/spillway/data"))
}

// Who follows docs/production.md on a fresh machine has a proxy at its end, observed, traced,
// enforced and removed: the shell lines of the page are run as they stand there.
func TestProduction_ByThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/production.md")
	require.NoError(t, err)
	deb, err := packaged()
	require.NoError(t, err)
	content, err := os.ReadFile(deb + ".deb")
	require.NoError(t, err)
	m := bootMachine(t)
	m.do("mkdir /tmp/fresh /tmp/www && echo 'it works' >/tmp/www/index.html")
	m.do("cd /tmp/www && systemd-run --quiet --working-directory=/tmp/www python3 -m http.server --bind 127.0.0.1 3000")
	const name = "spillway-v1.2.3-linux-amd64.deb"
	put := m.command("cat >/tmp/fresh/" + name)
	put.Stdin = bytes.NewReader(content)
	require.NoError(t, put.Run())
	m.do("cd /tmp/fresh && sha256sum * >SHA256SUMS")
	m.eventually("curl -s http://127.0.0.1:3000/")

	var said []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		said = append(said, m.do("set -e; cd /tmp/fresh; sudo() { \"$@\"; }\n"+block[1]))
	}
	require.Len(t, said, 6)
	require.Contains(t, said[0], name+": OK")
	require.Contains(t, said[1], "/etc/spillway/proxy.yaml is right: 7 settings of the proxy")
	require.Contains(t, said[1], "it works")
	require.Contains(t, said[2], `"SPILLWAY_SLO":"/etc/spillway/proxy.yaml:5"`)
	require.Contains(t, said[2], `spillway_requests_total{code="200",method="GET"`)
	require.Contains(t, said[4], "is right")
	require.Empty(t, m.do("command -v spillway || true"))
	require.Contains(t, m.do("journalctl -u spillway-proxy"), "configuration reloaded")
	require.Contains(t, m.do("cat /etc/spillway/proxy.yaml"), "mode: enforce")
}

// The rpm has the same files, and its scripts are shell.
func TestPackages_RPM(t *testing.T) {
	t.Parallel()
	name, err := packaged()
	require.NoError(t, err)
	deb, rpm := name+".deb", name+".rpm"
	list := func(command ...string) (files []string) {
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			file := line[strings.LastIndexByte(line, ' ')+1:]
			if file = strings.TrimPrefix(strings.TrimSpace(file), "."); !strings.HasSuffix(file, "/") || file == "/var/lib/spillway/" {
				files = append(files, strings.TrimSuffix(file, "/"))
			}
		}
		return files
	}
	files := list("dpkg-deb", "-c", deb)
	require.Contains(t, files, "/usr/lib/systemd/system/spillway-proxy.service")
	for from, to := range map[string]string{
		"../dashboards/prometheus/rules.yml": "/usr/share/spillway/prometheus", "../dashboards/prometheus/prometheus.yml": "/usr/share/spillway/prometheus",
		"../dashboards/grafana/*.json": "/usr/share/spillway/grafana",
	} {
		paths, err := filepath.Glob(from)
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, files, to+"/"+filepath.Base(path))
			got, err := exec.CommandContext(t.Context(), "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -xO ".$2"`, "sh", deb, to+"/"+filepath.Base(path)).Output()
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		}
	}
	require.ElementsMatch(t, files, list("rpm", "-qp", "--list", rpm))
	out, err := exec.CommandContext(t.Context(), "rpm", "-qp", "--qf", "%{VERSION} %{ARCH} %{LICENSE}\n[%{FILENAMES} %{FILEUSERNAME}:%{FILEGROUPNAME}\n]", rpm).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "1.2.3 "+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]+" Apache-2.0\n")
	require.Contains(t, string(out), "/etc/spillway/spillway.yaml root:spillway\n")
	require.Contains(t, string(out), "/var/lib/spillway spillway:spillway\n")
	scripts, err := filepath.Glob("../deploy/packages/*.sh")
	require.NoError(t, err)
	require.Len(t, scripts, 5)
	for _, script := range scripts {
		out, err := exec.CommandContext(t.Context(), "sh", "-n", script).CombinedOutput()
		require.NoError(t, err, "%s: %s", script, out)
	}
}
