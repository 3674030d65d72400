# %% [markdown]
# # Finding wrong labels
#
# scikit-learn's diabetes data. 5 % of the training targets are moved by three standard deviations, and then looked for. How well
# this works in general is measured in `experiments/label_noise.py`.

# %%
import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes

import axil
from axil import plots

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
train, validation = X.iloc[:320], X.iloc[320:]
rng = np.random.default_rng(0)
wrong = rng.choice(train.index, 16, replace=False)
targets = y.loc[train.index].copy()
targets.loc[wrong] += 3 * y.std() * rng.choice([-1, 1], len(wrong))
model = LGBMRegressor(n_estimators=80, num_leaves=8, learning_rate=0.08, verbose=-1, n_jobs=1).fit(train, targets)

# %% [markdown]
# ## The label check
#
# It puts first the labels that are furthest from what all other rows say of them, for where they are. No refit is needed. With
# validation rows it also lists what correcting each label would gain there.

# %%
explainer = axil.Explainer(model, train, targets)
table = explainer.find_label_issues(X_val=validation, y_val=y.loc[validation.index])
table["wrong"] = table["row"].isin(wrong)
print(table.head(10).round(2).to_string(index=False))

# %% [markdown]
# Eleven rows are marked, and all of them are wrong. The other five wrong targets happen to lie closer to what is expected, among
# right ones. `fdr` is the share of right labels that the marked rows may hold: a larger one marks more rows. The note counts the
# labels that are far out, and says how far.

# %%
for fdr in (0.1, 0.3, 0.5):
    marked = explainer.find_label_issues(fdr=fdr).query("is_label_issue")
    print(
        f"fdr={fdr}: {len(marked)} marked, {marked['row'].isin(wrong).sum()} of them wrong, of {len(wrong)} wrong ones"
    )
print(table.attrs["axil"].split("retraining; ")[1])

# %% [markdown]
# ## Far out is not the same as costly
#
# Sorted by the studentised residual the label check finds wrong labels; sorted by gain it finds the
# labels that cost most on the validation rows.

# %%
for column, what in (("studentised", "|studentised residual|"), ("gain", "gain on the validation rows")):
    keys = table[column].abs() if column == "studentised" else table[column]
    first = table.loc[keys.sort_values(ascending=False).index[: len(wrong)]]
    print(f"Among the {len(wrong)} rows of largest {what}: {first['wrong'].sum()} of {len(wrong)} wrong labels")

# %%
plots.influence(table)
plt.show()
