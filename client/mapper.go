package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/discover"
)

// NewMapper returns a mapper that asks the server for its resources when they are needed first, and again for what it
// does not know then: a custom resource may have been installed meanwhile, by the program itself even. For what the
// server does not know either it is asked ten times in a row, and once a second later. It logs nothing. It is safe for
// concurrent use.
func NewMapper(cfg *rest.Config) (meta.RESTMapper, error) {
	m, err := discover.NewMapper(cfg, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a mapper: %w", err)
	}
	return m, nil
}
