package deploytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// images resolves base images for the linter, which needs only their platform, without a registry.
type images struct{}

func (images) ResolveImageConfig(
	_ context.Context, ref string, opt sourceresolver.Opt,
) (string, digest.Digest, []byte, error) {
	p := opt.ImageOpt.Platform
	return ref, "", fmt.Appendf(nil, `{"os": %q, "architecture": %q}`, p.OS, p.Architecture), nil
}

var _ llb.ImageMetaResolver = images{}

// check runs docker build --check with all rules. It returns the warnings of parser and linter, and an error that would
// end a build.
func check(t *testing.T, text string) (wrong []string) {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return []string{err.Error()}
	}
	for _, w := range parsed.Warnings {
		wrong = append(wrong, w.Short)
	}
	if _, err = dockerfile2llb.Dockerfile2LLB(t.Context(), []byte(text), dockerfile2llb.ConvertOpt{
		Config:       dockerui.Config{LinterConfig: &linter.Config{ExperimentalAll: true}},
		MetaResolver: images{}, AllStages: true,
		Warn: func(rule, _, _, problem string, _ []parser.Range) { wrong = append(wrong, rule+": "+problem) },
	}); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// TestDockerfileLint: docker reports nothing about the Dockerfile, and reports these mistakes.
func TestDockerfileLint(t *testing.T) {
	t.Parallel()
	text := dockerfile(t)
	for _, problem := range check(t, text) {
		t.Error(problem)
	}
	for _, c := range []struct{ old, bad, rule string }{
		{"USER 65532:65532", "USER 65532:65532\nMAINTAINER me", "MaintainerDeprecated"},
		{"AS build", "as build", "FromAsCasing"},
		{"ENTRYPOINT [\"/fairlead\"]", "ENTRYPOINT /fairlead", "JSONArgsRecommended"},
		{"WORKDIR /src", "WORKDIR src", "WorkdirRelativePath"},
		{"COPY . .", "COPY . $SRC", "UndefinedVar"},
		{"RUN GOOS", "\nRUNN GOOS", "unknown instruction"},
		{"$BUILDPLATFORM", "linux/arm64", "FromPlatformFlagConstDisallowed"},
	} {
		changed := strings.Replace(text, c.old, c.bad, 1)
		if got := fmt.Sprint(check(t, changed)); changed == text || !strings.Contains(got, c.rule) {
			t.Errorf("with %q for %q there is only %s", c.bad, c.old, got)
		}
	}
}

// TestPlatforms: for each platform the image has a program for that platform.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	text := dockerfile(t)
	for _, arch := range []string{"amd64", "arm64"} {
		if got := architectures(t, text, arch); !slices.Equal(got, []string{arch}) {
			t.Errorf("the image for %s has programs for %v", arch, got)
		}
	}
	bad := strings.Replace(text, "ARG TARGETOS TARGETARCH", "ARG TARGETOS=linux TARGETARCH=amd64", 1)
	if got := architectures(t, bad, "arm64"); !slices.Equal(got, []string{"amd64"}) {
		t.Errorf("a default is not seen: %v", got)
	}
}

// architectures returns the values of TARGETARCH for the calls of go build in a Dockerfile, in an image for a platform.
func architectures(t *testing.T, text, arch string) (out []string) {
	t.Helper()
	platform := ocispecs.Platform{OS: "linux", Architecture: arch}
	built, err := dockerfile2llb.Dockerfile2LLB(t.Context(), []byte(text), dockerfile2llb.ConvertOpt{
		MetaResolver: images{}, TargetPlatform: &platform,
	})
	if err != nil {
		t.Fatal(err)
	}
	def, err := built.State.Marshal(t.Context(), llb.Platform(platform))
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range def.Def {
		var op pb.Op
		if err := op.UnmarshalVT(raw); err != nil {
			t.Fatal(err)
		}
		exec := op.GetExec()
		if exec == nil || !strings.Contains(fmt.Sprint(exec.Meta.Args), "go build") {
			continue
		}
		for _, each := range exec.Meta.Env {
			if value, ok := strings.CutPrefix(each, "TARGETARCH="); ok {
				out = append(out, value)
			}
		}
	}
	return out
}
