// Package controller is the command fairlead controller.
package controller
