"""The results that Geng et al. (2020) report, and the differences between their data and ours."""

NAMES = {
    "bshift": "BShift",
    "tree_depth": "TreeDepth",
    "top_const": "TopConst",
    "wrd": "WRD",
    "wrd_small": "WRD, Multi30k",
    "wrd_published": "WRD, published test set",
    "wrd_files": "WRD, other files",
    "wrd_cited": "WRD, trained as cited",
    "nli": "SNLI",
    "nli_sick": "SICK",
    "srl": "semantic roles",
    "srl_small": "semantic roles, small",
    "mt_multi30k": "Multi30k En-De",
    "mt_multi30k_small": "Multi30k En-De, small",
    "mt_en_ro": "IWSLT14 En-Ro",
    "mt_en_ja": "KFTT En-Ja",
    "mt_en_de": "WMT14 En-De",
}
"""The titles of data sets, in the order of tables."""
LAYERS = (1, 2, 3, 4, 5, 6)

# Table 2: BShift test accuracy in percent, without a selector and with a selector in each layer.
BSHIFT = (52.23, 62.55, 53.73, 54.65, 54.29, 54.78, 54.23)
BSHIFT_EARLIER = 49.30
"""The standard network as earlier work reported it; quoted in the paper."""

# Table 3: WRD test accuracy in percent (insert, original, both), as in table 2.
WRD = (
    (73.20, 66.00, 60.10),
    (81.52, 72.19, 66.77),
    (80.14, 70.01, 63.97),
    (79.82, 69.69, 63.93),
    (79.08, 70.22, 63.67),
    (80.19, 69.84, 64.12),
    (80.27, 69.50, 63.73),
)

# Table 4: TreeDepth, F1 by depth in percent (SAN, SSAN) and the share of the depth.
TREE_DEPTH = {
    "5": (68.66, 75.22, 6.9),
    "6": (56.10, 64.09, 14.3),
    "7": (46.63, 55.05, 16.3),
    "8": (39.68, 50.88, 17.9),
    "9": (38.33, 50.97, 17.4),
    "10": (35.54, 49.88, 15.3),
    "11": (48.86, 56.39, 11.9),
}
TREE_DEPTH_ALL = (45.68, 55.90)

# Table 5: TopConst, F1 of groups of classes in percent (SAN, SSAN) and the share of the group.
TOP_CONST = {
    "Ques.": (95.90, 97.06, 10.0),
    "Decl.": (88.48, 91.34, 60.0),
    "Clau.": (72.78, 78.32, 25.0),
    "Other": (50.67, 61.13, 5.0),
}
TOP_CONST_ALL = (83.78, 87.25)
TOP_GROUPS = {
    "Ques.": ("WHADVP_SQ_.", "WHNP_SQ_."),
    "Decl.": (
        "ADVP_NP_VP_.",
        "CC_ADVP_NP_VP_.",
        "CC_NP_VP_.",
        "IN_NP_VP_.",
        "NP_ADVP_VP_.",
        "NP_NP_VP_.",
        "NP_PP_.",
        "NP_VP_.",
        "PP_NP_VP_.",
        "RB_NP_VP_.",
        "VBD_NP_VP_.",
        "VP_.",
    ),
    "Clau.": ("SBAR_NP_VP_.", "SBAR_VP_.", "S_CC_S_.", "S_NP_VP_.", "S_VP_."),
    "Other": ("OTHER",),
}
"""The classes of each group. They are inferred, because the paper only has the names and sizes of
groups."""

PROBE_SENTENCES = 100_000
"""The number of training sentences of a probe of SentEval."""
SMALL_PROBE = "fewer sentences than SentEval's 100,000, 10,000 and 10,000"
REORDERING_SUBSTITUTES = {
    "files": "sentences of other files, reordered by the published procedure, where the paper has "
    "7M sentences of WMT14 English in byte pairs",
    "multi30k": "words of Multi30k captions, reordered by the published procedure, where the paper "
    "has 7M sentences of WMT14 English in byte pairs",
    "published": "the published test sentences; trained on 9,000 of the published validation "
    "sentences, restored and reordered again, where the paper has 7M sentences",
}

# Table 1: accuracy, F1 or BLEU in percent (SAN, SSAN).
TABLE1 = {
    "nli": (85.60, 86.30),
    "srl": (82.48, 82.88),
    "mt_en_ro": (23.22, 23.91),
    "mt_en_ja": (31.56, 32.17),
    "mt_en_de": (27.60, 28.50),
}
FULL_TASK = {"nli_sick": "nli", "srl_small": "srl"}
"""Smaller tasks of ours, and the task of the paper whose difference is the measure."""
REINFORCE = {"mt_en_de": (27.60, 27.90)}
"""The results of a selector that is trained by reward, from the paper's text."""

# Table 6: brackets of trees from the attention of the En-De encoder, in percent (SAN, SSAN).
TABLE6 = {"precision": (21.09, 22.07), "recall": (22.05, 23.07), "f1": (21.56, 22.56)}

# Table 7: share of attention by part of speech: TreeDepth, TopConst, En-De, each (SAN, SSAN).
TABLE7 = {
    "Noun": ((0.149, 0.245), (0.126, 0.196), (0.418, 0.689)),
    "Verb": ((0.165, 0.190), (0.165, 0.201), (0.146, 0.126)),
    "Adj": ((0.040, 0.069), (0.033, 0.054), (0.077, 0.074)),
    "Content": ((0.354, 0.504), (0.324, 0.451), (0.641, 0.889)),
    "Prep": ((0.135, 0.082), (0.123, 0.119), (0.089, 0.032)),
    "Dete": ((0.180, 0.122), (0.103, 0.073), (0.070, 0.010)),
    "Punc": ((0.073, 0.068), (0.078, 0.072), (0.098, 0.013)),
    "Others": ((0.258, 0.224), (0.373, 0.286), (0.102, 0.057)),
    "Content-free": ((0.646, 0.496), (0.676, 0.549), (0.359, 0.111)),
}
TABLE7_DATA = ("tree_depth", "top_const", "mt_en_de")

# Figures 2 and 4: share of attention at distance 1 on BShift, in percent (SAN, SSAN).
DISTANCE_ONE = (12.4, 14.6)

SICK_SUBSTITUTE = "SICK, 4,500 training pairs, where the paper has SNLI with 550,000"
