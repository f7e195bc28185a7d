package project

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Convert completes the definitions of a project. A definition with several versions and without a conversion gets one
// that names the Service of the program, without a caBundle. The API server then converts no object before the program
// can. dir is the directory of the project; the default is the current one.
func Convert(dir string) (*Made, error) {
	p, err := open(dir)
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(p.at("deploy/crds/*.yaml"))
	if err != nil {
		return nil, p.no(err)
	}
	for _, at := range found {
		name := "deploy/crds/" + filepath.Base(at)
		text, err := os.ReadFile(at)
		if err != nil {
			return nil, p.no(err)
		}
		completed, err := withConversion(text, nameOf(p.module))
		if err != nil {
			return nil, p.no(fmt.Errorf("%s: %w", name, err))
		}
		if completed != nil {
			p.content[name] = completed
		}
	}
	return p.save()
}

// withConversion returns a definition with the missing conversion, or nil if none is missing.
func withConversion(text []byte, program string) ([]byte, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	if crd.Kind != "CustomResourceDefinition" || len(crd.Spec.Versions) < 2 || crd.Spec.Conversion != nil {
		return nil, nil
	}
	const begin = "\nspec:\n"
	at := bytes.Index(text, []byte(begin))
	if at < 0 {
		return nil, fmt.Errorf("there is no line %q", strings.TrimSpace(begin))
	}
	at += len(begin)
	stanza := fmt.Sprintf(`  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service:
          name: %s-webhook
          namespace: %[1]s-system
          path: /convert/%s.%s
      conversionReviewVersions:
      - v1
`, program, strings.ToLower(crd.Spec.Names.Kind), crd.Spec.Group)
	return bytes.Join([][]byte{text[:at], []byte(stanza), text[at:]}, nil), nil
}
