package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	// link matches the target of an inline link, of a reference and of an HTML attribute.
	link = regexp.MustCompile(`\]\(<?([^()<>\s]+)|^ {0,3}\[[^\]]+\]:\s+(\S+)|\b(?:src|srcset|href)="([^"\s]+)`)
	code = regexp.MustCompile("`[^`]*`")
	// anyURL matches every URL, so that a path within the URL of another site is no path of the repository.
	anyURL  = regexp.MustCompile("[a-z]+://[^\\s\"'`<>()\\[\\]]+")
	ours    = regexp.MustCompile(`^https://github\.com/fairlead-io/fairlead/(?:blob|tree|raw)/main/(.+)$`)
	page    = regexp.MustCompile(`\bdocs/[\w./-]*\.(?:md|svg|png)\b(?:#[\w-]+)?`)
	anchor  = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
	heading = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)\s*#*$`)
	// linked matches a link in a heading, which counts with its text alone.
	linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	// dropped matches the characters that GitHub leaves out of the anchor of a heading.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
)

// checker collects broken links. headings caches the anchors of each page that a link names.
type checker struct {
	files    fs.FS
	headings map[string]map[string]bool
	broken   []string
}

func (c *checker) file(name, text string) {
	markdown := strings.HasSuffix(name, ".md")
	fence := ""
	for i, line := range strings.Split(text, "\n") {
		report := func(target, reason string) {
			c.broken = append(c.broken, fmt.Sprintf("%s:%d: %s: %s", name, i+1, target, reason))
		}
		c.mentions(line, report)
		if !markdown {
			continue
		}
		if fence = inFence(fence, line); fence == "" {
			c.links(name, line, report)
		}
	}
}

// mentions checks URLs of the repository and paths below docs. A path is relative to the root of the repository, also
// in a file of another directory.
func (c *checker) mentions(line string, report func(target, reason string)) {
	for _, u := range anyURL.FindAllString(line, -1) {
		u = strings.TrimRight(u, ".,;:")
		if m := ours.FindStringSubmatch(u); m != nil {
			c.target("", m[1], u, report)
		}
	}
	for _, p := range page.FindAllString(anyURL.ReplaceAllString(line, ""), -1) {
		c.target("", p, p, report)
	}
}

// links checks the relative links of a line of Markdown outside of code.
func (c *checker) links(name, line string, report func(target, reason string)) {
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
		target := m[1] + m[2] + m[3]
		if u, err := url.Parse(target); err != nil || u.Scheme != "" || u.Host != "" {
			continue
		}
		c.target(name, target, target, report)
	}
}

// target checks one target, which is relative to the page from, or to the root if from is empty.
func (c *checker) target(from, target, shown string, report func(target, reason string)) {
	file, fragment, _ := strings.Cut(target, "#")
	if unescaped, err := url.PathUnescape(file); err == nil {
		file = unescaped
	}
	if file == "" {
		file = from
	} else {
		file = path.Join(path.Dir(from), file)
	}
	if !fs.ValidPath(file) {
		report(shown, "leaves the repository")
		return
	}
	if _, err := fs.Stat(c.files, file); err != nil {
		report(shown, "no such file")
		return
	}
	if fragment != "" && strings.HasSuffix(file, ".md") && !c.anchors(file)[fragment] {
		report(shown, "no such heading")
	}
}

// anchors returns the anchors of a page: those of its headings, as GitHub forms them, and those that it declares.
func (c *checker) anchors(file string) map[string]bool {
	if known, ok := c.headings[file]; ok {
		return known
	}
	anchors := map[string]bool{}
	c.headings[file] = anchors
	text, err := fs.ReadFile(c.files, file)
	if err != nil {
		return anchors
	}
	fence := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if fence = inFence(fence, line); fence != "" {
			continue
		}
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := anchorOf(m[1])
		for i := 1; anchors[slug]; i++ {
			slug = fmt.Sprintf("%s-%d", anchorOf(m[1]), i)
		}
		anchors[slug] = true
	}
	return anchors
}

func anchorOf(heading string) string {
	text := dropped.ReplaceAllString(linked.ReplaceAllString(heading, "$1"), "")
	return strings.ReplaceAll(strings.ToLower(text), " ", "-")
}

// inFence returns the fence of the block of code that line belongs to, or that line opens. It returns "" for other
// lines and for the line that closes the block.
func inFence(fence, line string) string {
	line = strings.TrimSpace(line)
	for _, mark := range []string{"```", "~~~"} {
		switch {
		case !strings.HasPrefix(line, mark):
		case fence == "":
			return mark
		case fence == mark && strings.Trim(line, mark) == "":
			return ""
		}
	}
	return fence
}
