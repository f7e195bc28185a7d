package project

import (
	"os"
	"path"
	"strings"
	"testing"
)

// TestGuideNamesEachFile: the guide lists the files that a webhook and a version write and change.
func TestGuideNamesEachFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/guides/scaffolding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, webhooks, _ := strings.Cut(string(text), "\n## Webhooks\n")
	webhooks, versions, _ := strings.Cut(webhooks, "\n## Versions\n")
	versions, _, _ = strings.Cut(versions, "\n## ")
	dir := written(t)
	webhook, err := NewWebhook(WebhookOptions{Dir: dir, Group: group, Kind: "WebPage"})
	if err != nil {
		t.Fatal(err)
	}
	version, err := NewVersion(VersionOptions{Dir: dir, Group: group, Kind: "WebPage", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		command, section string
		files            []string
	}{{"new webhook", webhooks, webhook.Files}, {"new version", versions, version.Files}} {
		if len(tc.files) < 5 {
			t.Errorf("%s writes only %q", tc.command, tc.files)
		}
		for _, name := range tc.files {
			if !strings.Contains(tc.section, "`"+name+"`") && !strings.Contains(tc.section, "`"+path.Dir(name)+"/`") {
				t.Errorf("the guide does not say that %s writes %s", tc.command, name)
			}
		}
	}
}
