package deploytest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// instruction is one instruction of a Dockerfile.
type instruction struct {
	name, rest string
}

// stages returns the instructions of a Dockerfile by stage, each starting with FROM.
func stages(t *testing.T, text string) [][]instruction {
	t.Helper()
	var out [][]instruction
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		switch {
		case name == "FROM":
			out = append(out, nil)
		case len(out) == 0:
			t.Fatalf("%s before the first FROM", name)
		}
		out[len(out)-1] = append(out[len(out)-1], instruction{name, strings.TrimSpace(rest)})
	}
	return out
}

var (
	version  = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?$`)
	goOfBase = regexp.MustCompile(`^golang:([0-9.]+)-`)
)

// base returns the base image of a stage, and the name of the stage after it, without the platform.
func base(stage []instruction) []string {
	return slices.DeleteFunc(strings.Fields(stage[0].rest), func(word string) bool {
		return word == "--platform=$BUILDPLATFORM"
	})
}

// lint returns what is wrong with a Dockerfile of a program that needs no other files.
func lint(t *testing.T, text string) (wrong []string) {
	t.Helper()
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	all := stages(t, text)
	names := map[string]bool{}
	for i, stage := range all {
		from := base(stage)
		if from[0] != "scratch" && !names[from[0]] && !version.MatchString(from[0]) {
			say("FROM %s has no fixed version", from[0])
		}
		if len(from) == 3 {
			names[from[2]] = true
		}
		for _, in := range stage {
			switch in.name {
			case "ADD":
				say("ADD where COPY suffices")
			case "COPY":
				if of, ok := strings.CutPrefix(strings.Fields(in.rest)[0], "--from="); ok && !names[of] {
					say("COPY from %s, which is not a stage", of)
				}
			case "FROM", "RUN", "ENV", "ARG", "WORKDIR", "USER", "ENTRYPOINT", "CMD":
			default:
				say("%s in stage %d", in.name, i)
			}
		}
	}
	last, built := all[len(all)-1], fmt.Sprint(all[:len(all)-1])
	if last[0].rest != "scratch" {
		say("the base image %s has more than the program", last[0].rest)
	}
	for _, flag := range []string{"CGO_ENABLED=0", "GOTOOLCHAIN=local", "-trimpath", "-buildid="} {
		if !strings.Contains(built, flag) {
			say("built without %s", flag)
		}
	}
	find := func(name string) string {
		i := slices.IndexFunc(last, func(in instruction) bool { return in.name == name })
		if i < 0 {
			return ""
		}
		return last[i].rest
	}
	user, group, _ := strings.Cut(find("USER"), ":")
	for _, id := range []string{user, group} {
		if n, err := strconv.Atoi(id); err != nil || n == 0 {
			say("USER %q is not a numeric user other than root", find("USER"))
			break
		}
	}
	var command []string
	if err := json.Unmarshal([]byte(find("ENTRYPOINT")), &command); err != nil || len(command) == 0 {
		say("ENTRYPOINT %s needs a shell", find("ENTRYPOINT"))
	}
	if slices.ContainsFunc(last, func(in instruction) bool { return in.name == "RUN" }) {
		say("RUN in the image itself")
	}
	return wrong
}

func dockerfile(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := dockerfile(t)
	for _, problem := range lint(t, text) {
		t.Error(problem)
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, wanted, _ := strings.Cut(string(module), "\ngo ")
	wanted, _, _ = strings.Cut(wanted, "\n")
	has := goOfBase.FindStringSubmatch(base(stages(t, text)[0])[0])
	if has == nil || older(has[1], wanted) {
		t.Errorf("built with Go %v, go.mod wants %s", has, wanted)
	}
	for old, bad := range map[string]string{ // mistakes that lint must find
		"USER 65532:65532": "USER 0:0", "FROM scratch": "FROM debian:latest", "-trimpath": "", "--from=build": "--from=other",
		"CGO_ENABLED=0":            "",
		`ENTRYPOINT ["/fairlead"]`: "ENTRYPOINT /fairlead", "golang:": "golang@", "COPY . .": "ADD . .",
	} {
		if changed := strings.Replace(text, old, bad, 1); changed == text || len(lint(t, changed)) == 0 {
			t.Errorf("with %q for %q nothing is wrong", bad, old)
		}
	}
}

// older compares versions of Go.
func older(version, than string) bool {
	return slices.Compare(numbers(version), numbers(than)) < 0
}

func numbers(version string) (out []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}

// TestImage: the Deployment runs a fixed version, as the user of the image.
func TestImage(t *testing.T) {
	t.Parallel()
	built := build(t)
	image := at(t, built, "Deployment", "spec", "template", "spec", "containers", 0, "image").(string)
	if !version.MatchString(image) {
		t.Errorf("image %s has no fixed version", image)
	}
	pod := at(t, built, "Deployment", "spec", "template", "spec", "securityContext").(map[string]any)
	all := stages(t, dockerfile(t))
	for _, in := range all[len(all)-1] {
		if want := fmt.Sprintf("%v:%v", pod["runAsUser"], pod["runAsGroup"]); in.name == "USER" && in.rest != want {
			t.Errorf("the image is for %s, the pod runs as %s", in.rest, want)
		}
	}
}
