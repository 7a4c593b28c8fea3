# The paper's figures and tables, from the simulator: docs/paper. Minutes; the same bytes each time.
.PHONY: paper
paper: $(BUILD)/quire ## the paper's figures and tables from the simulator, into docs/paper (PAPER="--only waste" for one)
	@python3 tools/paper/make.py --quire $(BUILD)/quire $(PAPER)

# The same comparisons in wall-clock on the real server: under 15 minutes on two cores that do nothing else.
.PHONY: paper-real
paper-real: $(BUILD)/quire $(BUILD)/checkasm $(MODEL_FILE) ## layouts, preemption and prefix cache measured on the real server, into docs/paper/real.md (PAPER="--rows 12 --cap 100": a quick look, printed)
	@python3 tools/paper/real.py --quire $(BUILD)/quire --checkasm $(BUILD)/checkasm --model "$(MODEL_FILE)" $(PAPER)
