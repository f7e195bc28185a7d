package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults, the same that the schemas carry.
const (
	// DefaultTimeout of an operation.
	DefaultTimeout = 2 * time.Hour

	// DefaultWebhookTimeout of one webhook in one operation.
	DefaultWebhookTimeout = 2 * time.Hour

	// DefaultRequestTimeout of one try.
	DefaultRequestTimeout = 30 * time.Second

	// defaultMethod of a request.
	defaultMethod = "POST"

	// defaultBody of a request.
	defaultBody = "{}"

	// defaultCorrelationHeader carries the correlation id.
	defaultCorrelationHeader = "X-Correlation-ID"

	// DefaultPollInterval between two polls.
	DefaultPollInterval = 10 * time.Second

	// defaultMaxAttempts of a call, the first one included.
	defaultMaxAttempts = 10

	// DefaultInitialInterval bounds the wait after the first try.
	DefaultInitialInterval = time.Second

	// DefaultMaxInterval bounds every wait.
	DefaultMaxInterval = 5 * time.Minute

	// defaultBreakerFailures in a row open the breaker.
	defaultBreakerFailures = 5

	// defaultBreakerOpenFor is how long it stays open.
	defaultBreakerOpenFor = 30 * time.Second
)

// Default fills in what is not set, as the API server does. Objects read from a server have it done already.
func (o *Operation) Default() {
	setDefault(&o.Spec.Execution, ExecutionSequential)
	setDefault(&o.Spec.Timeout, duration(DefaultTimeout))
}

// Default fills in what is not set, as the API server does. Objects read from a server have it done already. The
// expressions of response and poll have no default here: an empty one leaves the judgement to the executor, as
// documented at the field.
func (w *Webhook) Default() {
	s := &w.Spec
	setDefault(&s.Mode, ModeSync)
	setDefault(&s.Request.Method, defaultMethod)
	if s.Request.Body == nil {
		s.Request.Body = new(defaultBody)
	}
	setDefault(&s.RequestTimeout, duration(DefaultRequestTimeout))
	setDefault(&s.CorrelationHeader, defaultCorrelationHeader)
	setDefault(&s.Poll.Interval, duration(DefaultPollInterval))
	setDefault(&s.Retry.MaxAttempts, defaultMaxAttempts)
	setDefault(&s.Retry.InitialInterval, duration(DefaultInitialInterval))
	setDefault(&s.Retry.MaxInterval, duration(DefaultMaxInterval))
	setDefault(&s.Timeout, duration(DefaultWebhookTimeout))
	setDefault(&s.Breaker.Failures, defaultBreakerFailures)
	setDefault(&s.Breaker.OpenFor, duration(defaultBreakerOpenFor))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
