package webhook

import "time"

// Mode says how the receiver reports its result.
type Mode string

// The modes of a webhook.
const (
	Sync          Mode = "Sync"          // the answer is the result
	Async         Mode = "Async"         // the answer names a URL to poll
	AsyncCallback Mode = "AsyncCallback" // the receiver calls back
)

// Definition describes an endpoint: the request, and the rules that judge the answer. Its fields mirror the spec of the
// Webhook resource, and errors name fields as the resource does. Zero fields mean the defaults.
type Definition struct {
	// Namespace and Name identify the endpoint, which owns limits, breaker and cached tokens. The Resolver gets the
	// Namespace.
	Namespace, Name string
	// Revision distinguishes versions of the endpoint for a Witness. It has no other use.
	Revision string

	Mode              Mode          // default Sync
	Request           Request       //
	RequestTimeout    time.Duration // of one try; default 30s
	CorrelationHeader string        // default X-Correlation-ID
	Response          Response      //
	Poll              Poll          //
	Retry             RetryPolicy   //
	Timeout           time.Duration // of all tries, polls and waits together; default 2h; enforced by the caller
	Auth              *Auth         // nil: none
	SigningSecret     string        // name of the secret with the signing keys; empty: not signed
	TLS               TLS           //
	Concurrency       int           // concurrent requests; 0: no limit
	RatePerSecond     float64       // started requests; 0: no limit
	Breaker           Breaker       //
}

// Request describes the request. Every field is a template.
type Request struct {
	Method string // default POST
	URL    string // absolute, http or https
	// Headers maps names to templates. An empty value sends no header. User-Agent, Accept and Content-Type may be set.
	// Headers of the protocol are ignored (see Compiled.Warnings). Headers that change the connection are an error.
	Headers map[string]string
	Body    *string // default {} as application/json; empty: no body. GET and HEAD never send {}
}

// Response holds the CEL rules for the answer of a call.
type Response struct {
	Success string // default: status 2xx
	Gone    string // default: status 404 or 410
	// default: no answer (status 0), 408, 425, 429, 5xx. An explicit rule takes precedence over success, the default
	// does not
	Retry    string
	Location string // the URL to poll; default: the Location header
	Error    string // an error text; a success with one is a failure. An evaluation error counts as no text
}

// Poll holds the CEL rules for the answer of a poll, and the poll interval.
type Poll struct {
	Interval  time.Duration // default 10s
	Succeeded string        // default: response.body.status is SUCCEEDED, SUCCESS or DONE, in any case
	Failed    string        // default: response.body.status is FAILED or ERROR, in any case
	Error     string        // as in Response
}

// RetryPolicy says how often and when a try is repeated.
type RetryPolicy struct {
	MaxAttempts     int           // tries, including the first; default 10
	InitialInterval time.Duration // default 1s
	MaxInterval     time.Duration // default 5m
}

// Auth selects exactly one authentication method. The Resolver resolves the named secrets at each try.
type Auth struct {
	Basic               string               // name of a secret with username and password
	Bearer              string               // name of a secret with token
	MTLS                string               // name of a secret with tls.crt and tls.key
	OAuth2              *OAuth2              // client credentials
	ServiceAccountToken *ServiceAccountToken //
}

// OAuth2 gets a token by the client credentials grant (RFC 6749, section 4.4).
type OAuth2 struct {
	TokenURL string
	Scopes   []string
	Secret   string // name of a secret with client_id and client_secret
}

// ServiceAccountToken uses a token of a service account from the Resolver.
type ServiceAccountToken struct {
	Audience           string
	ServiceAccountName string
}

// TLS configures the trust in the server.
type TLS struct {
	CASecret   string // name of a secret with ca.crt; default: the system's CAs
	ServerName string // default: the host of the URL
}

// Breaker stops calls to an endpoint that keeps failing.
type Breaker struct {
	Failures int           // consecutive; default 5
	OpenFor  time.Duration // default 30s
}

// Keys of the secrets.
const (
	keyUsername     = "username"
	keyPassword     = "password"
	keyToken        = "token"
	keyTLSCert      = "tls.crt"
	keyTLSKey       = "tls.key"
	keyClientID     = "client_id"
	keyClientSecret = "client_secret"
	keyCA           = "ca.crt"
)

// Bounds of definitions. A value beyond a bound counts as the bound: the API server refuses such Webhooks, but may have
// stored some before.
const (
	// of every wait between tries and polls, also after jitter and Retry-After
	MinInterval       = 50 * time.Millisecond
	MaxAttempts       = 100_000
	MaxRequestTimeout = 10 * time.Minute
	MaxTimeout        = 720 * time.Hour
)

// Bounds of requests and answers.
const (
	maxBody     = 1 << 20   // bytes read of an answer, after unpacking
	maxHeader   = 64 << 10  // bytes of the headers of an answer
	MaxMessage  = 1 << 10   // bytes of Result.Message
	maxRequest  = 1 << 20   // bytes of a rendered body
	maxURL      = 8 << 10   // bytes of a rendered or received URL
	maxValue    = 8 << 10   // bytes of a rendered header value
	maxTemplate = 256 << 10 // bytes of the source of a template
	maxExpr     = 4 << 10   // characters of an expression
)

const (
	defaultBody = "{}"

	// At most maxLong answers longer than smallBody bytes are in memory at a time, shared between namespaces.
	smallBody = 64 << 10
	maxLong   = 32
	// maxValues bounds the JSON that is parsed: parsed values take up to fifty times the memory of their text.
	maxValues = 100_000
	// maxSecret bounds the values of a secret that are sent, in bytes. Masking searches answers for two dozen spellings
	// of each.
	maxSecret = 16 << 10
	// maxKeys bounds the signing keys of a request: the current key and those of a rotation.
	maxKeys = 8
	// maxMasked, in bytes, and maxMaskedValues bound the secrets that Client.Mask searches for.
	maxMasked, maxMaskedValues = 64 << 10, 64
)

func (d Definition) withDefaults() Definition {
	if d.Mode == "" {
		d.Mode = Sync
	}
	if d.Request.Method == "" {
		d.Request.Method = "POST"
	}
	setDefault(&d.RequestTimeout, 30*time.Second, 0, MaxRequestTimeout)
	setDefault(&d.Timeout, 2*time.Hour, 0, MaxTimeout)
	setDefault(&d.Poll.Interval, 10*time.Second, MinInterval, MaxTimeout)
	setDefault(&d.Retry.InitialInterval, time.Second, MinInterval, MaxTimeout)
	setDefault(&d.Retry.MaxInterval, 5*time.Minute, MinInterval, MaxTimeout)
	setDefault(&d.Breaker.OpenFor, 30*time.Second, 0, MaxTimeout)
	if d.CorrelationHeader == "" {
		d.CorrelationHeader = "X-Correlation-ID"
	}
	if d.Retry.MaxAttempts == 0 {
		d.Retry.MaxAttempts = 10
	}
	d.Retry.MaxAttempts = min(d.Retry.MaxAttempts, MaxAttempts)
	if d.Breaker.Failures == 0 {
		d.Breaker.Failures = 5
	}
	return d
}

// setDefault sets the default and applies the bounds. It leaves negative values, which Compile refuses.
func setDefault(d *time.Duration, otherwise, least, most time.Duration) {
	switch {
	case *d == 0:
		*d = otherwise
	case *d > 0:
		*d = min(max(*d, least), most)
	}
}

func (d Definition) endpoint() string { return d.Namespace + "/" + d.Name }
