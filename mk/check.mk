.PHONY: layers
layers: ## the include law of src/LAYERS
	@awk -f tools/layers.awk src/LAYERS $$(find src -name '*.[ch]' -o -name '*.def')
