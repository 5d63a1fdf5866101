"""What stands around learners and is none of them: `isometry list` ends with it, no comparison tries it by itself."""

from __future__ import annotations

from isometry.registry.method import Method


class Around(Method):
    """A row of no family: it takes any learner, or a space that one has made."""

    @property
    def family(self) -> str:
        return "any"


ROWS = (
    Around("B27", "isometry.normalized:Normalized", "beyond the survey", kind="wrapper",
        own_title="Unit length after the map of any learner", own_equation="z(x) = L(x − m) / |L(x − m)|",
        own_sees="what its learner sees"),
    Around("B28", "isometry.eval.hubs:HubnessCorrection", "beyond the survey", kind="correction",
        own_title="Distances that leave fewer hubs", own_equation="csls: 2d² − r(x) − r(y);  local_scaling, nicdm, "
        "mutual_proximity", own_sees="none"),
    Around("B30", "isometry.fixed:FixedMetric", "beyond the survey", kind="wrapper",
        own_title="A known matrix as a metric", own_equation="d² = (x − x')ᵀ W (x − x'),  W = LᵀL given",
        own_sees="none"),
    Around("B31", "isometry.select.calibrate:PairVerifier", "beyond the survey", kind="wrapper",
        own_title="Any learner as a classifier of pairs, triplets or quadruplets",
        own_equation="same  ⇔  d(x, x') ≤ threshold", own_sees="what its learner sees"),
    Around("E49", "isometry.eval.retrieval_scores:retrieval", "beyond the survey", kind="evaluation",
        own_title="How well an embedding ranks what is relevant", own_equation="recall@k = max_{i≤k} rel_i;  "
        "MAP@R = Σ_{i≤R} P_i rel_i / R", own_sees="labels"),
)  # fmt: skip
