package v1alpha1

const (
	// LabelWebhookCredentials with the value "true" on a Secret releases it for the Webhooks of its namespace. Without it
	// they wait.
	LabelWebhookCredentials = "fairlead.io/webhook-credentials"

	// AnnotationWebhookAudiences on a service account lists, with commas, the audiences for which Webhooks of its
	// namespace may ask for its tokens. Without it they wait.
	AnnotationWebhookAudiences = "fairlead.io/webhook-audiences"
)

// SecretReference names a Secret in the same namespace, which has the label fairlead.io/webhook-credentials: "true".
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// WebhookAuth is exactly one way to prove who calls.
//
// +kubebuilder:validation:ExactlyOneOf=basic;bearer;mtls;oauth2;serviceAccountToken
type WebhookAuth struct {
	// basic sends the keys username and password of a Secret.
	// +optional
	Basic *SecretAuth `json:"basic,omitempty"`

	// bearer sends the key token of a Secret.
	// +optional
	Bearer *SecretAuth `json:"bearer,omitempty"`

	// mtls presents the client certificate in the keys tls.crt and tls.key of a Secret.
	// +optional
	MTLS *SecretAuth `json:"mtls,omitempty"`

	// oauth2 gets a token by the client credentials grant.
	// +optional
	OAuth2 *OAuth2Auth `json:"oauth2,omitempty"`

	// serviceAccountToken sends a token of a service account of the Webhook's namespace.
	// +optional
	ServiceAccountToken *ServiceAccountTokenAuth `json:"serviceAccountToken,omitempty"`
}

// SecretAuth takes credentials from a Secret.
type SecretAuth struct {
	// secretRef names the Secret.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// OAuth2Auth gets a token by the client credentials grant (RFC 6749, section 4.4).
type OAuth2Auth struct {
	// tokenURL is the token endpoint, http or https.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^/?#]+.*$`
	TokenURL string `json:"tokenURL"`

	// scopes that are asked for.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Scopes []string `json:"scopes,omitempty"`

	// secretRef names the Secret with the keys client_id and client_secret.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// ServiceAccountTokenAuth asks for a token of a service account, by TokenRequest.
type ServiceAccountTokenAuth struct {
	// audience of the token, which is the receiver. An audience that the API server itself accepts is refused, since the
	// receiver could then act as the service account in the cluster; the executor knows them all, the usual one is refused
	// already here.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(https://)?kubernetes([.]default([.]svc([.][a-z0-9.-]+)?)?)?(:[0-9]+)?/?$')",message="must not be an audience of the API server"
	Audience string `json:"audience"`

	// serviceAccountName names a service account of the Webhook's namespace, whose annotation
	// fairlead.io/webhook-audiences names the audience.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ServiceAccountName string `json:"serviceAccountName"`
}

// WebhookSigning adds a Standard Webhooks signature: v1 (HMAC-SHA256) for keys whsec_…, v1a (ed25519) for keys whsk_….
type WebhookSigning struct {
	// secretRef names the Secret; each of its values is a key, so that two can be valid during rotation.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// WebhookTLS says which server is trusted.
type WebhookTLS struct {
	// caSecretRef names the Secret with the trusted certificate authorities in key ca.crt. Default: those of the system.
	// +optional
	CASecretRef *SecretReference `json:"caSecretRef,omitempty"`

	// serverName is the name in the server's certificate. Default: the host of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
}
