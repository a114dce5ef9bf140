package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// Reload returns what i becomes when next was read in its place while it is in force: what
// can be changed live has the value of next, all else that of i. Live and fixed are the
// flags of the settings that differ, of either kind, sorted. What is live depends on nothing that
// is not, but for the workers of split pools, which are fixed. The line of what is fixed is said to be
// that of the start, as the file has changed.
func (i *Invocation) Reload(next *Invocation) (merged Invocation, live, fixed []string) {
	merged = *next
	differ := func(into, was, is any) {
		to, from, now := reflect.ValueOf(into).Elem(), reflect.ValueOf(was), reflect.ValueOf(is)
		for _, f := range reflect.VisibleFields(to.Type()) {
			name := f.Tag.Get("name")
			if i.Command == Proxy && to.Type() == reflect.TypeFor[Config]() && !slices.Contains(proxySettings, name) {
				continue
			}
			if reflect.DeepEqual(from.FieldByIndex(f.Index).Interface(), now.FieldByIndex(f.Index).Interface()) {
				continue
			}
			if _, ok := f.Tag.Lookup("live"); !ok || name == "workers" && i.Config.Pools == "split" {
				fixed = append(fixed, name)
				to.FieldByIndex(f.Index).Set(from.FieldByIndex(f.Index))
				continue
			}
			live = append(live, name)
		}
	}
	differ(&merged.Config, i.Config, next.Config)
	if i.Command == Proxy {
		differ(&merged.Proxy, i.Proxy, next.Proxy)
	}
	merged.From = maps.Clone(next.From)
	for _, name := range fixed {
		delete(merged.From, variable(name))
		if origin, ok := i.From[variable(name)]; ok {
			if merged.From == nil {
				merged.From = map[string]string{}
			}
			if origin != fromEnvironment && origin != fromFlag {
				origin = strings.TrimSuffix(origin, atStart) + atStart
			}
			merged.From[variable(name)] = origin
		}
	}
	slices.Sort(live)
	slices.Sort(fixed)
	return merged, live, fixed
}

const atStart = " at the start"

// checkFile checks a configuration file, together with the environment, as a reload would. It may be a pipe,
// which can be read once.
func checkFile(in Input, name string) (Invocation, error) {
	content, err := in.read(name, true)
	if err != nil {
		return Invocation{}, &FileError{File: name, Reason: fmt.Sprintf("it cannot be read: %v", err)}
	}
	readFile := in.ReadFile
	in.ReadFile = func(file string, pipe bool) ([]byte, error) {
		if file == name {
			return content, nil
		}
		return readFile(file, pipe)
	}
	settings, err := parseFile(name, content)
	if err != nil {
		return Invocation{}, err
	}
	in.Args, in.NoEmptyFile = []string{"--config=" + name}, true
	who, first := "the service", math.MaxInt
	for key, e := range settings {
		if key == "upstream" || strings.HasPrefix(key, "proxy-") {
			who, first = "the proxy", min(first, e.line)
		}
	}
	if who == "the proxy" {
		in.Args = append(in.Args, proxyCommand)
	}
	inv, err := Parse(in)
	if err == nil {
		err = inv.checkTLSFiles(&in)
	}
	if bad, ok := errors.AsType[*ValueError](err); ok && bad.Setting == "upstream" && bad.Value == "" {
		bad.From = fmt.Sprintf("%s:%d", name, first)
		bad.Allowed += ", as this file is for the proxy"
	}
	if err != nil {
		return Invocation{}, err
	}
	return Invocation{
		Command: CheckConfig, Config: inv.Config, Warnings: inv.Warnings,
		Text: fmt.Sprintf("%s is right: %d settings of %s\n", name, len(settings), who),
	}, nil
}

// checkTLSFiles reads the certificate and its key, if there is one.
func (i *Invocation) checkTLSFiles(in *Input) error {
	if i.Config.TLSCert == "" {
		return nil
	}
	var pair [2][]byte
	for n, v := range []ValueError{{Setting: "tls-cert", Value: i.Config.TLSCert}, {Setting: "tls-key", Value: i.Config.TLSKey}} {
		var err error
		if pair[n], err = in.read(v.Value, false); err != nil {
			v.Allowed, v.From = fmt.Sprintf("a file that can be read (%v)", err), i.inFile(v.Setting)
			return &v
		}
	}
	if _, err := tls.X509KeyPair(pair[0], pair[1]); err != nil {
		return &ValueError{
			Setting: "tls-key", Value: i.Config.TLSKey, From: i.inFile("tls-key"),
			Allowed: fmt.Sprintf("the key of the certificate in %s, both PEM (%v)", i.Config.TLSCert, err),
		}
	}
	return nil
}

// inFile returns the line of the configuration file that a setting is from, or "".
func (i *Invocation) inFile(setting string) string {
	if from := i.From[variable(setting)]; from != fromFlag && from != fromEnvironment {
		return from
	}
	return ""
}
