package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// TestPlugin: if kubectl calls the program as a plugin, help and errors use that name only.
func TestPlugin(t *testing.T) {
	t.Parallel()
	byItself := regexp.MustCompile(`(?m)(^|kubectl )\s*fairlead [a-z]`)
	look := func(path ...string) {
		var out, errs strings.Builder
		if code := runAs(t.Context(), "kubectl-fairlead", append(path, "--help"), strings.NewReader(""), &out,
			&errs); code != 0 {
			t.Fatalf("%v: exit code %d: %s", path, code, &errs)
		}
		if want := strings.Join(append([]string{"kubectl fairlead"}, path...), " "); !strings.Contains(out.String(),
			want) {
			t.Errorf("the help of %v does not say %q:\n%s", path, want, &out)
		}
		for _, call := range byItself.FindAllString(out.String(), -1) {
			if !strings.HasPrefix(call, "kubectl ") {
				t.Errorf("the help of %v names the program without kubectl: %q", path, call)
			}
		}
	}
	var each func(cmd *cobra.Command, path ...string)
	each = func(cmd *cobra.Command, path ...string) {
		look(path...)
		for _, child := range cmd.Commands() {
			each(child, append(path[:len(path):len(path)], child.Name())...)
		}
	}
	each(newRootCommand(cli.Streams{}))

	for name, want := range map[string]string{
		"kubectl-fairlead": "kubectl fairlead op get: ", "kubectl-fairlead.exe": "kubectl fairlead op get: ",
		"fairlead": "fairlead op get: ", "fairlead-v0.1.0": "fairlead op get: ",
	} {
		var out, errs strings.Builder
		code := runAs(t.Context(), name, []string{"op", "get"}, strings.NewReader(""), &out, &errs)
		if code != cli.ExitUsage || !strings.HasPrefix(errs.String(), want) {
			t.Errorf("%s: exit code %d, %s", name, code, &errs)
		}
	}
}
