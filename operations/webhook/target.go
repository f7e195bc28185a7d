package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

var errURL = errors.New("cannot use URL")

// parseTarget accepts absolute http and https URLs without credentials and without dot segments.
func parseTarget(text string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("%w: longer than %d bytes", errURL, maxURL)
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c == 0x7f || c == '\\' {
			return nil, fmt.Errorf("%w: it contains a space, a backslash or a control character", errURL)
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the URL
		}
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	return u, checkTarget(u)
}

func checkTarget(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%w: its scheme is neither http nor https", errURL)
	case u.Hostname() == "":
		return fmt.Errorf("%w: it has no host", errURL)
	case u.User != nil:
		return fmt.Errorf("%w: it contains a user name or password; use auth", errURL)
	}
	for segment := range strings.SplitSeq(u.Path, "/") { // decoded, so that %2e counts
		if segment == "." || segment == ".." {
			return fmt.Errorf("%w: its path has a segment of dots", errURL)
		}
	}
	u.Fragment, u.RawFragment = "", ""
	return nil
}

// resolveLocation returns the absolute URL to poll.
func resolveLocation(location string, from *url.URL) (string, error) {
	if strings.Contains(location, masked) {
		return "", fmt.Errorf("%w to poll: it contains a secret", errURL)
	}
	location = strings.TrimSpace(location)
	if len(location) > maxURL {
		return "", fmt.Errorf("%w to poll: longer than %d bytes", errURL, maxURL)
	}
	ref, err := url.Parse(location)
	if err != nil {
		return "", fmt.Errorf("%w to poll: it cannot be parsed", errURL)
	}
	absolute, err := parseTarget(from.ResolveReference(ref).String())
	if err != nil {
		return "", fmt.Errorf("cannot poll: %w", err)
	}
	return absolute.String(), nil
}

// originOf returns scheme, host and port in canonical form.
func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) + ":" + port
}
