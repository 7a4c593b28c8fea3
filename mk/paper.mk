# The paper's figures and tables, from the simulator: docs/paper. Minutes; the same bytes each time.
.PHONY: paper
paper: $(BUILD)/quire ## the paper's figures and tables from the simulator, into docs/paper (PAPER="--only waste" for one)
	@python3 tools/paper/make.py --quire $(BUILD)/quire $(PAPER)
