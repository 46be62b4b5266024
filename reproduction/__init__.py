"""The experiments of the paper (Section 6 and appendix): ``metakel paper all``."""

# name of the figure -> module that holds it as FIGURE
FIGURES = {
    "fig1": "fig1",
    "fig2": "fig2",
    "fig3": "fig3",
    "fig4": "fig4",
    "fig5": "fig5",
    "fig6-left": "fig6_left",
    "fig6-right": "fig6_right",
    "fig7": "fig7",
    "fig8": "fig8",
    "fig9": "fig9",
    "fig10": "fig10",
    "recovery": "recovery",
    "anytime": "anytime",
    "misspecified": "misspecified",
}

__all__ = ["FIGURES"]
