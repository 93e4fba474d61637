"""English words that say nothing of what a sentence is about."""

ENGLISH = frozenset(
    """
    a about above after again against all almost also although always am among an and another any
    are around as at be became because been before being below between both but by came can cannot
    could did do does doing done down during each either enough even ever every few first for from
    further get given gives had has have having he her here hers herself him himself his how however
    i if in instead into is it its itself just last least less like made make makes many may me
    might more most much must my myself neither never new next no nor not now of off often on once
    one only onto or other others our ours ourselves out over own per rather s same second see
    several shall she should since so some still such t than that the their theirs them themselves
    then there thereby therefore these they this those though three through thus to together too
    toward towards two under until up upon us use used uses using very was we well were what
    whatever when where whereas whether which while who whole whom whose why will with within
    without would yet you your yours yourself
    """.split()
)
