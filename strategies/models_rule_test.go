//go:build !race

package strategies_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/strategytest"
)

// It is the rule that TestStrategies_KeepTheRules leaves out, and of one goroutine.
func TestStrategies_DoAsTheirModels(t *testing.T) {
	t.Parallel()
	modelled(t, func(t *testing.T, spec strategies.Spec, model func(strategies.Config) strategies.Discipline) {
		t.Helper()
		rules := strategytest.Rules(model)
		rule := rules[len(rules)-1]
		require.Equal(t, "model", rule.Name)
		require.NoError(t, rule.Check(spec), rule.Why)
	})
}
